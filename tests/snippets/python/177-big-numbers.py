print(2 ** 1000, len(str(10 ** 4000)))
try:
    int("9" * 5000)
    print("converted")
except ValueError as error:
    print(error)
