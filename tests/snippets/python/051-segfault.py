import ctypes
print("falling", flush=True)
ctypes.string_at(0)
