import os
print("before", flush=True)
os.execvp("sh", ["sh", "-c", "echo replaced; exit 9"])
