try:
    raise SystemExit(4)
except SystemExit as error:
    print("caught", error.code)
print("still here")
