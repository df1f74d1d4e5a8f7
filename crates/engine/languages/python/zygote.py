"""Forks isolated slots from one Python that has started and preloaded already.

The zygote has one thread, an empty environment, pipes as standard streams (so that those of a slot look alike), a
writable /workspace and a full /proc; it is uid 0 of a user namespace that maps the ids of every slot; it never sees
a request. Its descriptor 3 is a SEQPACKET socket. It ends when the other side closes.

One message asks for one slot. Numbers are little-endian:

    u64 clone flags   u32 user and group   u32 options   u32 number of cgroup descriptors
    options: 1 init has the same user, 2 the request is waiting already, so spend no time on bringing pages in
    then five times u32 length and that many bytes:
        uid_map text, gid_map text, arguments of init (NUL between), limits (each u32 resource, u64 soft, u64 hard),
        seccomp programs (each u32 length and raw BPF, loaded in this order)

and carries descriptors: init's executable, init's control socket, stdin, stdout, stderr, the request pipe, then the
cgroup.procs files.

The answer is i32 errno, i32 pid and the name of the step that broke, or nothing; with errno 0 it carries a pidfd.

    zygote ─ clone3 ─▶ PID 1: waits for its id maps, forks PID 2, executes init
                          descriptors of init: 3 control, 4 writes "go", 5 reads what PID 2 reports
                         └▶ PID 2: joins its cgroups, waits for a byte from init (mounts are made, root is pivoted),
                            locks itself in, touches its pages, reports, reads the request from descriptor 3

Init stays outside the cgroup: what the code uses is counted and limited there, and init must outlive it.

PID 2 reports `ready` or `error <step> <errno>`, one line, then closes. PID 1, while it is not yet init, reports such
an error line on its control socket.
"""

import array
import ctypes
import errno
import fcntl
import os
import resource
import signal
import socket
import struct
import sys
import threading

SYS_CLONE3, CLONE_PIDFD, CLONE_NEWCGROUP = 435, 0x1000, 0x02000000
PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAPABILITIES_V3 = 47, 2, 0x20080522
PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_SECUREBITS, PR_SET_NO_NEW_PRIVS = 4, 22, 24, 28, 38
LOCKED_SECUREBITS = 0xEF  # no root privileges, no fix-up at setuid, no kept and no ambient capabilities; all locked
MADV_POPULATE_READ, MADV_POPULATE_WRITE = 22, 23
PAGE = os.sysconf("SC_PAGESIZE")

libc = ctypes.PyDLL(None, use_errno=True)  # keeps the interpreter's lock
libc.syscall.restype = ctypes.c_long
libc.madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int

processes = sys.modules.get("multiprocessing.process")

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


class Broken(Exception):
    """A step that could not be done, and its errno."""


class At:
    """Names the step that an error inside belongs to."""

    def __init__(self, step):
        self.step = step

    def __enter__(self):
        pass

    def __exit__(self, kind, error, trace):
        if isinstance(error, (OSError, ValueError)):
            raise Broken(self.step, getattr(error, "errno", None) or errno.EINVAL) from None


def check(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
    return result


def prctl(option, value, data=None):
    return check(libc.prctl(option, ctypes.c_ulong(value), data, None, None))


class Order:
    """One message, taken apart."""

    def __init__(self, message, fds):
        self.flags, self.user, options, cgroups = struct.unpack_from("<QIII", message)
        self.shared, self.hurried = options & 1, options & 2
        parts, at = [], 20
        for _ in range(5):
            parts.append(message[at + 4:at + 4 + struct.unpack_from("<I", message, at)[0]])
            at += 4 + len(parts[-1])
        self.uid_map, self.gid_map, arguments, limits, filters = parts
        self.arguments = arguments.split(b"\0")
        self.limits = list(struct.iter_unpack("<IQQ", limits))
        self.filters = []
        while filters:
            end = 4 + struct.unpack_from("<I", filters)[0]
            self.filters.append(filters[4:end])
            filters = filters[end:]
        self.init, self.control, *self.streams = fds[:6]
        self.cgroups = fds[6:]
        if len(self.streams) != 4 or len(fds) != 6 + cgroups:
            raise OSError(22, "")


def serve():
    """Answers messages for ever. Returns in every slot, as PID 2, when it is ready for its request."""
    pages = learn()
    if pages is None:
        return
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # No zombies: init reports the status of a slot.
    door = socket.socket(fileno=3)
    while True:
        message, packed, _, _ = door.recvmsg(1 << 16, socket.CMSG_SPACE(4 * 32), socket.MSG_CMSG_CLOEXEC)
        if not message:
            os._exit(0)
        fds = array.array("i")
        for _, _, data in packed:
            fds.frombytes(data)
        try:
            pid, pidfd = spawn(order := Order(message, fds.tolist()))
            if pid == 0:
                door.detach()
                return become_slot(order, pages)
            door.sendmsg([struct.pack("<ii", 0, pid)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [pidfd]))])
            os.close(pidfd)
        except Broken as broken:
            step, number = broken.args
            door.send(struct.pack("<ii", number or 5, 0) + step.encode())
        except (OSError, struct.error, ValueError):
            door.send(struct.pack("<ii", 22, 0) + b"message")
        for fd in fds:
            os.close(fd)


def spawn(order):
    """Clones PID 1 of a slot and gives it its id maps. Returns its pid and pidfd, or in PID 2 zeros."""
    with At("threads"):
        if os.stat("/proc/self/task").st_nlink != 3:
            raise OSError(16, "")
    mapped, go = os.pipe()
    pidfd = ctypes.c_int(-1)
    arguments = (ctypes.c_uint64 * 11)(order.flags | CLONE_PIDFD, ctypes.addressof(pidfd), 0, 0, signal.SIGCHLD)
    with At("clone"):
        pid = check(libc.syscall(SYS_CLONE3, arguments, ctypes.c_size_t(88)))
    if pid == 0:
        os.close(go)
        return become_init(order, mapped)
    os.close(mapped)
    try:
        for name, text in ("uid_map", order.uid_map), ("gid_map", order.gid_map):
            with At(name):
                write_file(f"/proc/{pid}/{name}", text)
        os.write(go, b"g")
    except Broken:
        os.close(pidfd.value)
        raise
    finally:
        os.close(go)  # Without the byte, PID 1 ends.
    return pid, pidfd.value


def become_init(order, mapped):
    """Goes on as PID 1: forks PID 2, in which it returns, and executes init."""
    report = order.control
    try:
        if not os.read(mapped, 1):
            os._exit(1)
        with At("ids"):
            if order.shared:
                keep_capabilities()
            else:
                os.setgroups([])
                os.setresgid(0, 0, 0)
                os.setresuid(0, 0, 0)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        (wait, go), (heard, said) = os.pipe(), os.pipe()
        # The C library's own fork: after it, thread ids and locks are right in PID 2, which a bare clone leaves stale.
        if os.fork() == 0:
            for fd in order.cgroups:  # First of all: every page from here on counts.
                os.write(fd, b"0")
            order.streams += [said, wait]
            return 0, 0
        with At("exec"):
            place([order.control, go, heard, order.init], 3)
            os.set_inheritable(6, False)
            os.execve(6, order.arguments, {})
    except Broken as broken:
        step, number = broken.args
        os.write(report, f"error {step} {number}\n".encode())
    finally:
        if os.getpid() == 1:
            os._exit(1)


def become_slot(order, pages):
    """Goes on as PID 2: takes its streams, waits for init, gives up all rights for good."""
    stdin, stdout, stderr, request, said, wait = order.streams
    place([stdin, stdout, stderr, request, said, wait], 0)
    try:
        if not os.read(5, 1):
            os._exit(1)
        os.close(5)
        lock_in(order)
    except Broken as broken:
        step, number = broken.args
        os.write(4, f"error {step} {number}\n".encode())
        os._exit(1)
    for start, length, advice in () if order.hurried else pages:
        libc.madvise(start, length, advice)
    refresh()


def lock_in(order):
    """Each step may need a right that a later one gives up."""
    with At("session"):
        check(libc.unshare(CLONE_NEWCGROUP))  # hides the path of the cgroup
        os.setsid()
        os.umask(0o022)
        os.chdir("/workspace")
    with At("limits"):
        for kind, soft, hard in order.limits:
            resource.setrlimit(kind, (soft if soft < 1 << 63 else -1, hard if hard < 1 << 63 else -1))
    with At("capabilities"):
        for capability in range(64):
            try:
                prctl(PR_CAPBSET_DROP, capability)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                break  # This kernel has no more.
        prctl(PR_SET_SECUREBITS, LOCKED_SECUREBITS)
    if not order.shared:
        with At("ids"):
            os.setgroups([])
            os.setresgid(order.user, order.user, order.user)
            os.setresuid(order.user, order.user, order.user)
    with At("capabilities"):
        check(libc.capset(struct.pack("<Ii", CAPABILITIES_V3, 0), bytes(24)))
    with At("seccomp"):
        prctl(PR_SET_DUMPABLE, 1)  # As after exec; without it /proc/self would not be the program's own.
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        for program in order.filters:
            code = ctypes.create_string_buffer(program, len(program))
            prctl(PR_SET_SECCOMP, 2, struct.pack("@HP", len(program) // 8, ctypes.addressof(code)))


def keep_capabilities():
    """Init is not root inside where there is only one user, so it would lose its capabilities when it is executed."""
    header, sets = struct.pack("<Ii", CAPABILITIES_V3, 0), ctypes.create_string_buffer(24)
    check(libc.capget(header, sets))
    low, _, _, high, _, _ = struct.unpack("<6I", sets.raw)
    check(libc.capset(header, struct.pack("<6I", low, low, low, high, high, high)))
    for capability in range(64):
        if (high << 32 | low) >> capability & 1:
            prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, ctypes.c_ulong(capability))


def refresh():
    """Renews what the zygote drew or noted for itself and what the interpreter does not renew at fork."""
    main = threading.main_thread()
    if hasattr(main, "_set_native_id"):
        main._set_native_id()
    if processes:
        processes.current_process().authkey = os.urandom(32)


def place(fds, first):
    """Moves descriptors to the numbers from `first` on, inheritable, and closes all above."""
    end = first + len(fds)
    for number, fd in enumerate([fcntl.fcntl(fd, fcntl.F_DUPFD, end) for fd in fds], first):
        os.dup2(fd, number)
    if libc.close_range(end, ctypes.c_uint(-1), 0):
        os.closerange(end, os.sysconf("SC_OPEN_MAX"))


def write_file(path, text):
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text)
    finally:
        os.close(fd)


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
        place([0, out, out, request, out], 0)
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
