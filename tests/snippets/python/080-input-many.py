import sys
total = sum(int(line) for line in sys.stdin)
print(total)
