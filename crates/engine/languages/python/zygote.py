"""Lets slots be forked from one Python that has started and preloaded already.

The zygote has one thread, an empty environment, pipes as standard streams (so that those of a slot look alike), a
writable /workspace and a full /proc; it never sees a request. Making the processes of a slot, in their namespaces and
without rights, is the work of a library (`isolate/src/zygote.rs`), which is asked through descriptor 3. In a slot that is
ready it returns here.
"""

import array
import ctypes
import fcntl
import os
import signal
import sys

LIBRARY = "/run/ringfence/zygote.so"
MADV_POPULATE_READ, MADV_POPULATE_WRITE = 22, 23
PAGE = os.sysconf("SC_PAGESIZE")

libc = ctypes.PyDLL(None, use_errno=True)  # keeps the interpreter's lock

# A small program of the usual kind. Its exit status is the number of a signal, see `learn`.
TRIAL = b"""
def area(width, height=2, *rest, **named):
    return [width * height + i for i in range(3)]
class Shape:
    kind = "shape"
    def __init__(self, name): self.name = name
    def __str__(self): return f"{self.kind}: {self.name!r} {1.5:.2f}"
try:
    print(Shape("box"), area(3), sum(x * x for x in range(9)), {"a": 1}["b"])
except KeyError as error:
    print("no", error, ", ".join(sorted({"x", "y"})), "%d" % 3)
raise SystemExit(19)
"""


def serve(keep_everything):
    """Returns in every slot, as PID 2, when it is ready for its request; never in the zygote."""
    library = ctypes.PyDLL(LIBRARY)
    library.ringfence_put_memory_in_place()
    pages = learn()
    if pages is None:
        return
    count = len(pages)
    memory = (ctypes.c_size_t * (3 * count))(*(number for page in pages for number in page))
    del pages
    keep_everything()  # Else the collector would soon go through what was made here, in every slot.
    # What `os.fork` does around the fork itself. Looked up here: each line that runs in a slot copies pages there.
    serve, before, after = library.ringfence_serve, ctypes.pythonapi.PyOS_BeforeFork, ctypes.pythonapi.PyOS_AfterFork_Child
    serve.argtypes = ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t
    before()
    serve(3, memory, count)
    after()


def learn():
    """Runs TRIAL once, natively, to its very end. Returns the memory it touched, or None in that run itself.

    After a fork every first touch of a page is a fault, and these are nearly all that a short program's time goes to.
    A slot that has these pages brought in while it waits does not meet them when its request comes.
    """
    (request, payload), (shown, out) = os.pipe(), os.pipe()
    os.write(payload, b"\0" + TRIAL)
    pid = os.fork()
    if pid == 0:
        if hasattr(libc, "on_exit"):  # Its last step is raise(exit status): it stops where nothing is left but to vanish.
            libc.on_exit(ctypes.cast(libc["raise"], ctypes.c_void_p), None)
        for number, fd in enumerate([fcntl.fcntl(fd, fcntl.F_DUPFD, 5) for fd in (0, out, out, request, out)]):
            os.dup2(fd, number)
        os.closerange(5, 64)
        return None
    for fd in request, payload, out:
        os.close(fd)
    _, status = os.waitpid(pid, os.WUNTRACED)
    pages = []
    if os.WIFSTOPPED(status):
        try:
            pages = touched(pid)
        except OSError:
            pass  # Slots are only slower then.
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    os.close(shown)
    os.unlink(sys.argv[0])
    return pages


def touched(pid):
    """Lists (address, length, advice) for pages that a forked process has copied, or mapped from files."""
    found = []
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/pagemap", "rb", 0) as pagemap:
        for line in maps:
            start, end = (int(bound, 16) for bound in line.split()[0].split("-"))
            if "[v" in line:
                continue  # the kernel's own
            pagemap.seek(start // PAGE * 8)
            for number, entry in enumerate(array.array("Q", pagemap.read((end - start) // PAGE * 8))):
                present, from_file, exclusive = entry >> 63, entry >> 61 & 1, entry >> 56 & 1
                if not present or not (from_file or exclusive):
                    continue
                advice = MADV_POPULATE_READ if from_file else MADV_POPULATE_WRITE
                address = start + number * PAGE
                if found and found[-1][2] == advice and sum(found[-1][:2]) == address:
                    found[-1][1] += PAGE
                else:
                    found.append([address, PAGE, advice])
    return found
