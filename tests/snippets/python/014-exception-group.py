import sys
if sys.version_info >= (3, 11):
    raise ExceptionGroup("two", [ValueError("a"), ExceptionGroup("inner", [TypeError("b")])])
raise ValueError("a")
