import sys
value = object()
print(sys.getrefcount(value))
