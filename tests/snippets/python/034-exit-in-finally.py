import sys
try:
    print("body")
    sys.exit(6)
finally:
    print("finally")
