def numbers():
    try:
        yield 1
        yield 2
    finally:
        print("closed")
it = numbers()
print(next(it))
