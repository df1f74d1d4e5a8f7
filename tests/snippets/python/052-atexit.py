import atexit
atexit.register(print, "first registered")
atexit.register(print, "last registered")
print("body")
