import os, sys

def hear(event, arguments, write=os.write):
    if event.startswith("cpython."):
        write(1, event.encode() + b"\n")

sys.addaudithook(hear)
print("heard")
