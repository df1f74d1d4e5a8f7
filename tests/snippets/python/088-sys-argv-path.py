import sys
print(sys.argv)
print(sys.path)
print(sys.executable, sys.prefix)
