import os, sys
pid = os.fork()
if pid == 0:
    print("child", flush=True)
    sys.exit(7)
_, status = os.waitpid(pid, 0)
print("child ended with", os.WEXITSTATUS(status))
