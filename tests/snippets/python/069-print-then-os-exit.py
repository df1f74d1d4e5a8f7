import os
print("line")
os._exit(0)
