import sys
sys.unraisablehook = lambda info: print("unraisable", repr(info.exc_value), info.object.__qualname__)
class Thing:
    def __del__(self):
        raise ValueError("in del")
thing = Thing()
del thing
print("after")
