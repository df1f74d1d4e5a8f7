import sys
a = "".join(["he", "llo"])
print(sys.intern(a) is sys.intern("hello"), "".join(["a"]) is "a" or True)
