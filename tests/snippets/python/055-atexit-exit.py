import atexit, sys
sys.unraisablehook = lambda info: print("unraisable", repr(info.exc_value))
atexit.register(lambda: sys.exit(5))
print("body")
