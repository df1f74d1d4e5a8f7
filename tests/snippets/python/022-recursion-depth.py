import sys
depth = 0
def down():
    global depth
    depth += 1
    down()
try:
    down()
except RecursionError:
    pass
print(depth, sys.getrecursionlimit())
