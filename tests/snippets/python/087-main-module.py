import sys
main = sys.modules["__main__"]
print(main.__dict__ is globals(), main.__name__, type(__loader__).__name__, __builtins__.__name__)
