import ctypes, os, sys
libc = ctypes.PyDLL(None)
pid = libc.fork()
if pid == 0:
    sys.exit(7)
_, status = os.waitpid(pid, 0)
print("child", os.waitstatus_to_exitcode(status), flush=True)
sys.exit(5)
