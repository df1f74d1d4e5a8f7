"""What neighbours could take from each other: kernel resources that are counted for a user or for the whole machine.

    neighbours.py rows          names every row
    neighbours.py take ROW      takes all that it can get, says how much, and keeps it until it is ended
    neighbours.py use ROW       uses a little of it, as any program does, and says "works"

Arguments may come in ROW and ROLE instead. `take` runs in a hostile execution or sandbox; `use` runs at the same time in
one of another tenant, and on the host (`AT=host`). What is refused inside for everybody is expected to be refused there, and
to work on the host.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import signal
import socket
import struct
import sys
import tempfile

LIBC = ctypes.CDLL(None, use_errno=True)
ON_HOST = os.environ.get("AT") == "host"
ARM = os.uname().machine == "aarch64"
REFUSED = {errno.EPERM, errno.ENOSYS}
KEPT = []
TAKE, USE = {}, {}


def check(result):
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def syscall(x86, arm, *args):
    wide = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    return check(LIBC.syscall(ctypes.c_long(arm if ARM else x86), *wide))


def take(row):
    return lambda function: TAKE.setdefault(row, function)


def use(row):
    return lambda function: USE.setdefault(row, function)


def until_refused(call, most=1 << 20):
    """Repeats a call until it fails. Returns how often it worked, and why it did not go on."""
    for count in range(most):
        try:
            KEPT.append(call())
        except OSError as error:
            return count, errno.errorcode.get(error.errno, error.errno)
    return most, "enough"


def in_children(call, most=16):
    """Takes in this process and in children of it: each has descriptors of its own."""
    counts = []
    for _ in range(most):
        read, write = os.pipe()
        try:
            child = os.fork()
        except OSError:
            break
        if child == 0:
            os.write(write, repr(until_refused(call)).encode())
            signal.pause()
        os.close(write)
        counts.append(os.read(read, 4096).decode())
        os.close(read)
    return counts


def refused_inside(row, call):
    """A resource that nothing inside may have: there is nothing to take, and the host has it."""

    def use_it():
        try:
            call()
        except OSError as error:
            if ON_HOST or error.errno not in REFUSED:
                raise
            return
        if not ON_HOST:
            raise AssertionError(f"{row}: worked")

    TAKE[row] = lambda: until_refused(call)
    USE[row] = use_it


# What is counted for the creator of a user namespace.


def inotify():
    return check(LIBC.inotify_init1(0))


take("inotify instances")(lambda: in_children(inotify))
use("inotify instances")(lambda: [inotify() for _ in range(4)])


@take("inotify watches")
def _():
    folder, instance = tempfile.mkdtemp(), inotify()

    def watch():
        path = tempfile.mkdtemp(dir=folder)
        check(LIBC.inotify_add_watch(instance, path.encode(), 0xFFF))

    return until_refused(watch)


@use("inotify watches")
def _():
    folder, instance = tempfile.mkdtemp(), inotify()
    for _ in range(100):
        check(LIBC.inotify_add_watch(instance, tempfile.mkdtemp(dir=folder).encode(), 0xFFF))


def queue_signal():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
    check(LIBC.sigqueue(os.getpid(), int(signal.SIGRTMIN), ctypes.c_void_p(0)))


take("queued signals")(lambda: until_refused(queue_signal))
use("queued signals")(lambda: [queue_signal() for _ in range(32)])


def timer():
    number = ctypes.c_int()
    return syscall(222, 107, 1, 0, ctypes.byref(number))


take("timers")(lambda: until_refused(timer))
use("timers")(lambda: [timer() for _ in range(32)])


def process():
    child = os.fork()
    if child == 0:
        signal.pause()
    return child


take("processes")(lambda: until_refused(process))


@use("processes")
def _():
    for child in [process() for _ in range(8)]:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def locked_page():
    memory = mmap.mmap(-1, mmap.PAGESIZE)
    check(LIBC.mlock(ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(memory))), mmap.PAGESIZE))
    return memory


take("locked pages")(lambda: until_refused(locked_page))
use("locked pages")(locked_page)


# What is counted for a user of the host.


def pipe_of_a_megabyte():
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 1 << 20)
    return read, write


@take("pages of pipes")
def _():
    return in_children(pipe_of_a_megabyte, 4), until_refused(os.pipe)


@use("pages of pipes")
def _():
    read, write = os.pipe()
    assert fcntl.fcntl(write, fcntl.F_GETPIPE_SZ) == 65536, fcntl.fcntl(write, fcntl.F_GETPIPE_SZ)
    os.write(write, bytes(65536))
    assert len(os.read(read, 65536)) == 65536


@take("epoll watches")
def _():
    import select

    pipes = [os.pipe()[0] for _ in range(200)]

    def watch_all():
        poll = select.epoll()
        for fd in pipes:
            poll.register(fd, select.EPOLLIN)
        return poll

    return until_refused(watch_all)


@use("epoll watches")
def _():
    import select

    poll = select.epoll()
    for _ in range(32):
        poll.register(os.pipe()[0], select.EPOLLIN)


def send_descriptor(kept=[]):
    if not kept:
        kept.extend(socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
        kept[0].setblocking(False)
    rights = struct.pack("100i", *[kept[1].fileno()] * 100)
    try:
        kept[0].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    except BlockingIOError:
        KEPT.append(tuple(kept))
        kept.clear()
        send_descriptor()


take("descriptors in flight")(lambda: until_refused(send_descriptor, 4096))


@use("descriptors in flight")
def _():
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", 0))])
    assert other.recvmsg(1, 64)[1]


refused_inside("keys", lambda: syscall(248, 217, b"user", b"ringfence:neighbour", b"x", 1, -1))
refused_inside("fanotify groups", lambda: syscall(300, 262, 0x200, 0))


# What is counted for the whole machine.


take("terminals")(lambda: in_children(os.openpty))
use("terminals")(lambda: [os.openpty() for _ in range(4)])


def message_queue():
    name = b"ringfence_%d_%d" % (os.getpid(), len(KEPT))
    number = syscall(240, 180, name, os.O_CREAT | os.O_RDWR, 0o600, 0)
    syscall(241, 181, name)
    return number


refused_inside("message queues", message_queue)
refused_inside("contexts of asynchronous input", lambda: syscall(206, 0, 1, ctypes.byref(ctypes.c_ulong(0))))


def filtered_socket():
    """The compiled filters of all sockets share one limit, which the filters of system calls have too."""
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    code = ctypes.create_string_buffer(struct.pack("HBBI", 0, 0, 0, 1) * 4095 + struct.pack("HBBI", 6, 0, 0, 0))
    one.setsockopt(socket.SOL_SOCKET, 26, struct.pack("HxxxxxxQ", 4096, ctypes.addressof(code)))
    return one


refused_inside("socket filters", filtered_socket)


def flow_label():
    one = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    address = socket.inet_pton(socket.AF_INET6, "::1")
    # A new label, for this socket alone.
    request = address + struct.pack("!I", 0) + struct.pack("BBHHHI", 0, 1, 1, 60, 60, 0)
    one.setsockopt(socket.IPPROTO_IPV6, 32, request)
    return one


refused_inside("IPv6 flow labels", flow_label)


def locks_of(path):
    """One program has every byte of a file locked, each by itself."""
    file = os.open(path, os.O_RDWR | os.O_CREAT)

    def lock(at=iter(range(0, 1 << 40, 2))):
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, next(at))

    return lock


take("file locks")(lambda: until_refused(locks_of("/tmp/locks"), 4000))


@use("file locks")
def _():
    lock = locks_of(tempfile.mktemp())
    for _ in range(100):
        lock()


SHARED = ["/usr", "/usr/bin/env", "/etc", "/etc/passwd", "/dev/null"]


def lock_shared():
    """Locks files that every program sees. A shared inode would be a channel between tenants."""
    # Other runs of this table may lock them on the host at the same time, for a moment.
    signal.alarm(60 if ON_HOST else 0)
    for path in SHARED:
        file = os.open(path, os.O_RDONLY)
        fcntl.flock(file, fcntl.LOCK_EX if ON_HOST else fcntl.LOCK_EX | fcntl.LOCK_NB)
        KEPT.append(file)
    signal.alarm(0)
    return len(SHARED)


take("locks on files of the machine")(lock_shared)
use("locks on files of the machine")(lock_shared)


def connection(server=[]):
    """A connection whose both ends have sent all that the kernel takes, and read nothing."""
    if not server:
        server.append(socket.create_server(("127.0.0.1", 0), backlog=64))
    client = socket.create_connection(server[0].getsockname())
    ends = client, server[0].accept()[0]
    for end in ends:
        end.setblocking(False)
        try:
            while True:
                end.send(bytes(1 << 16))
        except BlockingIOError:
            pass
    return ends


take("memory of TCP sockets")(lambda: until_refused(connection, 400))


@use("memory of TCP sockets")
def _():
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    end = server.accept()[0]
    for _ in range(64):
        client.sendall(bytes(1 << 14))
        left = 1 << 14
        while left:
            left -= len(end.recv(left))


def full_datagrams(family=socket.AF_UNIX):
    one, other = socket.socketpair(family, socket.SOCK_DGRAM)
    one.setblocking(False)
    try:
        while True:
            one.send(bytes(1 << 15))
    except BlockingIOError:
        return one, other


take("memory of Unix sockets")(lambda: until_refused(full_datagrams))
use("memory of Unix sockets")(full_datagrams)


def datagrams_to_self():
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.bind(("127.0.0.1", 0))
    one.setblocking(False)
    for _ in range(256):
        try:
            one.sendto(bytes(1 << 15), one.getsockname())
        except BlockingIOError:
            break
    return one


take("memory of UDP sockets")(lambda: until_refused(datagrams_to_self))


@use("memory of UDP sockets")
def _():
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.bind(("127.0.0.1", 0))
    one.settimeout(5)
    one.sendto(b"x", one.getsockname())
    assert one.recv(8) == b"x"


take("open files")(lambda: in_children(lambda: os.open("/dev/null", os.O_RDONLY)))
use("open files")(lambda: [os.open("/dev/null", os.O_RDONLY) for _ in range(100)])
take("semaphores")(lambda: until_refused(lambda: check(LIBC.semget(0, 200, 0o600)), 4096))


@use("semaphores")
def _():
    number = check(LIBC.semget(0, 1, 0o600))
    check(LIBC.semctl(number, 0, 0))


take("shared memory segments")(lambda: until_refused(lambda: check(LIBC.shmget(0, 4096, 0o600)), 8192))


@use("shared memory segments")
def _():
    number = check(LIBC.shmget(0, 4096, 0o600))
    check(LIBC.shmctl(number, 0, 0))


def file_in(folder):
    return lambda: os.close(os.open(f"{folder}/{len(KEPT)}", os.O_CREAT | os.O_WRONLY))


take("inodes")(lambda: until_refused(file_in("/tmp"), 50_000))


@use("inodes")
def _():
    folder = tempfile.mkdtemp()
    for number in range(100):
        os.close(os.open(f"{folder}/{number}", os.O_CREAT | os.O_WRONLY))


@take("disk space")
def _():
    file = os.open("/tmp/full", os.O_CREAT | os.O_WRONLY)
    return until_refused(lambda: os.write(file, bytes(1 << 20)), 256)


@use("disk space")
def _():
    with tempfile.TemporaryFile() as file:
        file.write(bytes(1 << 20))


def main():
    arguments = sys.argv[1:] if len(sys.argv) > 2 else [os.environ.get("ROLE", "rows"), os.environ.get("ROW", "")]
    role, row = arguments
    assert TAKE.keys() == USE.keys(), TAKE.keys() ^ USE.keys()
    if role == "rows":
        print("\n".join(TAKE))
    elif role == "take":
        print("taken", TAKE[row](), flush=True)
        signal.pause()
    else:
        USE[row]()
        print("works", flush=True)


main()
