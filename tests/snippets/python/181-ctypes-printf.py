import ctypes
libc = ctypes.CDLL(None)
libc.printf(b"from C %d\n", 42)
