import os
print("printed")
os._exit(11)
