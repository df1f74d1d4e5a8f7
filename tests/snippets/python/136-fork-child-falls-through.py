import os
pid = os.fork()
if pid:
    os.waitpid(pid, 0)
    print("parent")
    raise SystemExit(3)
print("child", flush=True)
