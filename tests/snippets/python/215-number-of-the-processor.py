import ctypes, os
libc = ctypes.CDLL(None)
for processor in sorted(os.sched_getaffinity(0))[:4] * 2:
    os.sched_setaffinity(0, {processor})
    print(libc.sched_getcpu() == processor)
