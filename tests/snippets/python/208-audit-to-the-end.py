import os, sys

def hear(event, arguments):
    if event.startswith("cpython."):
        os.write(1, event.encode() + b"\n")

sys.addaudithook(hear)
print("heard")
