import os, subprocess
print(sorted(os.listdir("/proc/self/fd"))[:4])
print(subprocess.run(["ls", "/proc/self/fd"], capture_output=True, text=True, close_fds=False).stdout.split())
handle = open("/dev/null")
print(handle.fileno())
