import sys
print(sys.stdin.buffer.read())
