"""The containment matrix, run inside a slot.

Every probe tries something that must not work and judges by effect: `blocked` needs the very answer
that the matrix allows; anything else is `open`, and a surprise in the probe itself is `error`. One
JSON line for each. Even a hit would do no harm: arguments are invalid wherever the call could act.
"""

import ctypes
import errno
import fcntl
import json
import os
import platform
import pty
import resource
import signal
import socket
import stat
import struct
import subprocess
import sys

FACTS = json.loads(os.environ.get("PROBE_FACTS", "{}"))
PROBES = []
LIBC = ctypes.CDLL(None, use_errno=True)
ARM = platform.machine() == "aarch64"
REFUSED = {errno.EPERM, errno.ENOSYS}


class Blocked(Exception):
    pass


class Open(Exception):
    pass


def probe(row, name):
    def register(function):
        PROBES.append((row, name, function))
        return function

    return register


def syscall(number, *args):
    """Returns (result, errno)."""
    ctypes.set_errno(0)
    wide = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    result = LIBC.syscall(ctypes.c_long(number), *wide)
    return result, ctypes.get_errno()


def expect_errno(call, allowed):
    result, code = call()
    name = errno.errorcode.get(code, code)
    if result == -1 and code in allowed:
        raise Blocked(name)
    raise Open(f"result {result}, errno {name}")


def expect_oserror(call, allowed):
    try:
        result = call()
    except OSError as error:
        if error.errno in allowed:
            raise Blocked(errno.errorcode.get(error.errno, error.errno)) from None
        raise Open(f"errno {errno.errorcode.get(error.errno, error.errno)}") from None
    raise Open(f"worked: {result!r}"[:200])


def fact(name):
    if name not in FACTS:
        raise KeyError(f"fact {name} is missing")
    return FACTS[name]


def read(path, limit=65536):
    with open(path, "rb") as file:
        return file.read(limit)


# System calls: (row, name, number on x86_64, number on aarch64 or None, arguments)
CALLS = [
    ("X04", "mount", 165, 40, (0, 0, 0, 0, 0)),
    ("X04", "umount2", 166, 39, (0, 0)),
    ("X04", "pivot_root", 155, 41, (0, 0)),
    ("X04", "chroot", 161, 51, (0,)),
    ("X04", "move_mount", 429, 429, (-1, 0, -1, 0, 0)),
    ("X04", "open_tree", 428, 428, (-1, 0, 0)),
    ("X04", "fsopen", 430, 430, (0, 0)),
    ("X04", "fsconfig", 431, 431, (-1, 0, 0, 0, 0)),
    ("X04", "fsmount", 432, 432, (-1, 0, 0)),
    ("X04", "fspick", 433, 433, (-1, 0, 0)),
    ("X04", "mount_setattr", 442, 442, (-1, 0, 0, 0, 0)),
    ("X05", "setns", 308, 268, (-1, 0)),
    ("X05", "unshare user", 272, 97, (0x10000000,)),
    ("X05", "unshare mount", 272, 97, (0x00020000,)),
    ("X05", "unshare pid", 272, 97, (0x20000000,)),
    ("X05", "unshare net", 272, 97, (0x40000000,)),
    ("X05", "unshare ipc", 272, 97, (0x08000000,)),
    ("X05", "unshare uts", 272, 97, (0x04000000,)),
    ("X05", "unshare cgroup", 272, 97, (0x02000000,)),
    ("X05", "unshare time", 272, 97, (0x00000080,)),
    ("X05", "clone3", 435, 435, (0, 0)),
    ("X11", "bpf", 321, 280, (0, 0, 0)),
    ("X11", "perf_event_open", 298, 241, (0, 0, -1, -1, 0)),
    ("X11", "userfaultfd", 323, 282, (0,)),
    ("X11", "io_uring_setup", 425, 425, (1, 0)),
    ("X11", "io_uring_enter", 426, 426, (-1, 0, 0, 0, 0)),
    ("X11", "io_uring_register", 427, 427, (-1, 0, 0, 0)),
    ("X11", "keyctl", 250, 219, (0, -3, 0)),
    ("X11", "add_key", 248, 217, (0, 0, 0, 0, -3)),
    ("X11", "request_key", 249, 218, (0, 0, 0, -3)),
    ("X11", "kexec_load", 246, 104, (0, 17, 0, 0)),
    ("X11", "kexec_file_load", 320, 294, (-1, -1, 0, 0, 0xFFFF)),
    ("X11", "init_module", 175, 105, (0, 0, 0)),
    ("X11", "finit_module", 313, 273, (-1, 0, 0)),
    ("X11", "delete_module", 176, 106, (0, 0)),
    ("X11", "open_by_handle_at", 304, 265, (-1, 0, 0)),
    ("X11", "name_to_handle_at", 303, 264, (-1, 0, 0, 0, 0)),
    ("X11", "lookup_dcookie", 212, 18, (0, 0, 0)),
    ("X11", "process_vm_readv of PID 1", 310, 270, (1, 0, 0, 0, 0, 0)),
    ("X11", "process_vm_writev of PID 1", 311, 271, (1, 0, 0, 0, 0, 0)),
    ("X11", "process_madvise", 440, 440, (-1, 0, 0, 0, 0)),
    ("X11", "ptrace traceme", 101, 117, (0, 0, 0, 0)),
    ("X11", "ptrace attach to PID 1", 101, 117, (16, 1, 0, 0)),
    ("X11", "kcmp", 312, 272, (1, 2, 0, 0, 0)),
    ("X11", "pidfd_getfd", 438, 438, (-1, 0, 0)),
    ("X11", "quotactl", 179, 60, (0, 0, 0, 0)),
    ("X11", "swapon", 167, 224, (0, 0)),
    ("X11", "swapoff", 168, 225, (0,)),
    ("X11", "reboot with invalid magic", 169, 142, (0, 0, 0, 0)),
    ("X11", "acct", 163, 89, (1,)),
    ("X11", "settimeofday", 164, 170, (1, 1)),
    ("X11", "clock_settime", 227, 112, (99, 0)),
    ("X11", "adjtimex", 159, 171, (1,)),
    ("X11", "clock_adjtime", 305, 266, (0, 1)),
    ("X11", "iopl", 172, None, (3,)),
    ("X11", "ioperm", 173, None, (0, 1, 1)),
    ("X11", "modify_ldt", 154, None, (0, 0, 0)),
    ("X11", "vmsplice", 278, 75, (-1, 0, 0, 0)),
    ("X11", "splice", 275, 76, (-1, 0, -1, 0, 0, 0)),
    ("X11", "tee", 276, 77, (-1, -1, 0, 0)),
    ("X11", "fanotify_init", 300, 262, (0, 0)),
    ("X11", "fanotify_mark", 301, 263, (-1, 0, 0, -1, 0)),
    ("X11", "memfd_secret", 447, 447, (0,)),
    ("X11", "mbind", 237, 235, (0, 0, 0, 0, 0, 0)),
    ("X11", "set_mempolicy", 238, 237, (0, 0, 0)),
    ("X11", "migrate_pages", 256, 238, (0, 0, 0, 0)),
    ("X11", "move_pages", 279, 239, (0, 0, 0, 0, 0, 0)),
    ("X11", "syslog", 103, 116, (3, 0, 0)),
    ("X11", "sethostname", 170, 161, (0, 0)),
    ("X11", "setdomainname", 171, 162, (0, 0)),
    ("X11", "seccomp", 317, 277, (99, 0, 0)),
    ("X11", "capset", 126, 91, (0, 0)),
    ("X11", "remap_file_pages", 216, 234, (0, 0, 0, 0, 0)),
    ("X11", "vhangup", 153, 58, ()),
    ("X11", "uselib", 134, None, (0,)),
    ("X11", "nfsservctl", 180, 42, (0, 0, 0)),
    ("X11", "ioprio_set", 251, 30, (1, 0, 0)),
    ("X11", "personality READ_IMPLIES_EXEC", 135, 92, (0x0400000,)),
    ("X11", "personality ADDR_NO_RANDOMIZE", 135, 92, (0x0040000,)),
    ("X11", "personality PER_LINUX32", 135, 92, (0x0008,)),
    ("X31", "mlockall", 151, 230, (1,)),
    ("X31", "sched_setscheduler FIFO", 144, 119, (0, 1, 0)),
    ("X31", "sched_setattr", 314, 274, (0, 0, 0)),
]
for row, name, x86, arm, args in CALLS:
    number = arm if ARM else x86
    if number is not None:
        probe(row, f"call {name}")(
            lambda number=number, args=args: expect_errno(lambda: syscall(number, *args), REFUSED)
        )

NAMESPACES = {
    "time": 0x80, "mount": 0x20000, "cgroup": 0x2000000, "uts": 0x4000000, "ipc": 0x8000000,
    "user": 0x10000000, "pid": 0x20000000, "net": 0x40000000,
}


def clone_with(flag):
    result, code = syscall(220 if ARM else 56, flag | signal.SIGCHLD, 0, 0, 0, 0)
    if result == 0:
        os._exit(0)
    return result, code


for name, flag in NAMESPACES.items():
    probe("X05", f"clone into a new {name} namespace")(
        lambda flag=flag: expect_errno(lambda: clone_with(flag), {errno.EPERM})
    )

FAMILIES = {
    "ALG": 38, "VSOCK": 40, "PACKET": 17, "XDP": 44, "TIPC": 30, "RDS": 21, "CAN": 29,
    "BLUETOOTH": 31, "KEY": 15, "PPPOX": 24, "IEEE802154": 36, "NFC": 39, "KCM": 41, "SMC": 43,
    "QIPCRTR": 42, "IB": 27, "MPLS": 28, "AX25": 3, "APPLETALK": 5, "X25": 9,
}
NO_FAMILY = {errno.EAFNOSUPPORT, errno.EPERM}
for name, family in FAMILIES.items():
    probe("X10", f"socket AF_{name}")(
        lambda family=family: expect_oserror(lambda: socket.socket(family, socket.SOCK_DGRAM), NO_FAMILY)
    )
for name, protocol in {"audit": 9, "netfilter": 12, "uevent": 15, "generic": 16, "crypto": 21, "xfrm": 6}.items():
    probe("X10", f"netlink {name}")(
        lambda protocol=protocol: expect_oserror(
            lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol), NO_FAMILY
        )
    )
for family in (socket.AF_INET, socket.AF_INET6):
    probe("X10", f"raw socket {family.name}")(
        lambda family=family: expect_oserror(lambda: socket.socket(family, socket.SOCK_RAW, 1), {errno.EPERM})
    )


# X01, X02: our own programs, descriptors and environment.
@probe("X01", "write to the program of PID 1")
def _():
    expect_oserror(lambda: os.open("/proc/1/exe", os.O_WRONLY), {errno.EACCES, errno.ENOENT, errno.EPERM})


@probe("X01", "write to the interpreter")
def _():
    expect_oserror(
        lambda: os.open("/proc/self/exe", os.O_WRONLY), {errno.EACCES, errno.ETXTBSY, errno.EROFS}
    )


@probe("X02", "descriptors beyond 0, 1 and 2")
def _():
    extra = [int(fd) for fd in os.listdir("/proc/self/fd") if int(fd) > 2]
    # The listing itself holds one open, which is gone by now.
    left = [fd for fd in extra if _link(f"/proc/self/fd/{fd}")]
    if [fd for fd in left if not is_exit_pipe(fd)] or len(left) > 1:
        raise Open(str({fd: _link(f"/proc/self/fd/{fd}") for fd in left}))
    raise Blocked(f"0, 1, 2, {left}")


def is_exit_pipe(fd):
    """A runtime that was started ahead keeps one: it can say nothing but its own exit code."""
    is_pipe = stat.S_ISFIFO(os.fstat(fd).st_mode)
    return is_pipe and fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY


def _link(path):
    try:
        return os.readlink(path)
    except OSError:
        return None


@probe("X02", "working directory and root")
def _():
    cwd, root = os.readlink("/proc/self/cwd"), os.readlink("/proc/self/root")
    if (cwd, root) == ("/workspace", "/"):
        raise Blocked("inside")
    raise Open(f"{cwd} {root}")


@probe("X02", "the server's environment")
def _():
    canary = fact("canary").encode()
    seen = read("/proc/self/environ") + repr(dict(os.environ, PROBE_FACTS="")).encode()
    seen = seen.replace(json.dumps(FACTS).encode(), b"").replace(os.environ["PROBE_FACTS"].encode(), b"")
    if canary in seen:
        raise Open("canary found")
    raise Blocked("clean")


@probe("X02", "environment of PID 1")
def _():
    expect_oserror(lambda: read("/proc/1/environ"), {errno.EACCES, errno.ENOENT, errno.EPERM})


for entry in ("mem", "maps", "root", "cwd", "fd", "ns/mnt", "stack", "syscall", "auxv"):
    probe("X21", f"/proc/1/{entry}")(
        lambda entry=entry: expect_oserror(
            lambda: os.listdir(f"/proc/1/{entry}") if entry in ("fd", "root", "cwd") else os.open(f"/proc/1/{entry}", os.O_RDONLY),
            {errno.EACCES, errno.ENOENT, errno.EPERM},
        )
    )

# X04: nothing of the system can be written to.
for path in ("/usr/probe", "/usr/bin/probe", "/etc/probe", "/bin/probe", "/dev/probe", "/probe", "/home/probe",
             "/root/probe", "/var/probe", "/run/probe", "/proc/probe"):
    probe("X04", f"create {path}")(
        lambda path=path: expect_oserror(
            lambda: os.open(path, os.O_CREAT | os.O_WRONLY), {errno.EROFS, errno.EACCES, errno.ENOENT, errno.EPERM}
        )
    )


@probe("X04", "write into a file of the system")
def _():
    expect_oserror(lambda: os.open("/etc/passwd", os.O_WRONLY), {errno.EROFS, errno.EACCES})


# X06, X07: kernel settings.
@probe("X06", "sysfs and cgroups are not there")
def _():
    found = [p for p in ("/sys/kernel", "/sys/fs/cgroup", "/sys/class", "/sys/devices") if os.path.exists(p)]
    if found:
        raise Open(str(found))
    raise Blocked("absent")


@probe("X06", "no cgroup is mounted")
def _():
    if b" - cgroup" in read("/proc/self/mountinfo"):
        raise Open("a cgroup mount")
    raise Blocked("none")


@probe("X06", "the cgroup path says nothing")
def _():
    paths = {line.split(":", 2)[2] for line in read("/proc/self/cgroup").decode().splitlines()}
    foreign = {path for path in paths if path != "/" and ".." not in path.split("/")}
    named = {path for path in paths if "ringfence" in path or "slot" in path}
    if named or foreign:
        raise Open(str(paths))
    raise Blocked(str(paths))


SETTINGS = ("kernel/core_pattern", "kernel/modprobe", "kernel/hotplug", "kernel/sysrq", "kernel/ns_last_pid",
            "kernel/hostname", "kernel/randomize_va_space", "vm/overcommit_memory", "vm/drop_caches",
            "net/ipv4/ip_forward", "kernel/yama/ptrace_scope", "user/max_user_namespaces", "fs/suid_dumpable")
NOT_WRITABLE = {errno.EROFS, errno.EACCES, errno.ENOENT, errno.EPERM}
for path in SETTINGS:
    probe("X07", f"write {path}")(
        lambda path=path: expect_oserror(lambda: os.open(f"/proc/sys/{path}", os.O_WRONLY), NOT_WRITABLE)
    )


@probe("X07", "any setting below /proc/sys")
def _():
    count = 0
    for folder, _, files in os.walk("/proc/sys"):
        for name in files:
            count += 1
            try:
                os.close(os.open(os.path.join(folder, name), os.O_WRONLY))
            except OSError:
                continue
            raise Open(os.path.join(folder, name))
    raise Blocked(f"{count} files")


@probe("X07", "sysrq-trigger")
def _():
    expect_oserror(lambda: os.open("/proc/sysrq-trigger", os.O_WRONLY), NOT_WRITABLE)


for entry in ("oom_score_adj", "oom_adj", "coredump_filter", "timerslack_ns", "uid_map", "gid_map", "setgroups"):
    probe("X07", f"write /proc/self/{entry}")(
        lambda entry=entry: expect_oserror(lambda: os.open(f"/proc/self/{entry}", os.O_WRONLY), NOT_WRITABLE)
    )

# X09: devices.
DEVICES = {"null", "zero", "full", "random", "urandom", "tty", "pts", "ptmx", "shm", "fd", "stdin", "stdout", "stderr"}


@probe("X09", "devices beyond the everyday ones")
def _():
    extra = set(os.listdir("/dev")) - DEVICES
    if extra:
        raise Open(str(extra))
    raise Blocked("none")


for kind, name in ((stat.S_IFBLK, "block"), (stat.S_IFCHR, "character")):
    probe("X09", f"make a {name} device")(
        lambda kind=kind: expect_oserror(
            lambda: os.mknod("/tmp/device", kind | 0o600, os.makedev(1, 1)), {errno.EPERM}
        )
    )
for name in ("kmsg", "mem", "kvm", "fuse", "vda", "loop-control", "net/tun", "vsock", "console", "hwrng"):
    probe("X09", f"open /dev/{name}")(
        lambda name=name: expect_oserror(lambda: os.open(f"/dev/{name}", os.O_RDWR), {errno.ENOENT})
    )
# It is there, and leads to the caller's own terminal or nowhere.
probe("X09", "open /dev/tty")(lambda: expect_oserror(lambda: os.open("/dev/tty", os.O_RDWR), {errno.ENXIO}))


# X12: typing into a terminal.
def terminal(request):
    master, slave = pty.openpty()
    try:
        fcntl.ioctl(slave, request, b"x")
    finally:
        os.close(master)
        os.close(slave)


for name, request in {"TIOCSTI": 0x5412, "TIOCLINUX": 0x541C}.items():
    probe("X12", name)(lambda request=request: expect_oserror(lambda: terminal(request), {errno.EPERM}))


@probe("X12", "TIOCSTI with the upper half of the request set")
def _():
    master, slave = pty.openpty()
    expect_errno(lambda: syscall(29 if ARM else 16, slave, 0x100005412, ctypes.c_char_p(b"x")), {errno.EPERM})


# X13: no way to more rights.
def status(field):
    for line in read("/proc/self/status").decode().splitlines():
        if line.startswith(field + ":"):
            return line.split(":", 1)[1].strip()
    raise KeyError(field)


for field in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
    @probe("X13", f"{field} is empty")
    def _(field=field):
        if int(status(field), 16):
            raise Open(status(field))
        raise Blocked("0")


@probe("X13", "no_new_privs is set and the filter is on")
def _():
    if (status("NoNewPrivs"), status("Seccomp")) == ("1", "2"):
        raise Blocked("1, 2")
    raise Open(f"{status('NoNewPrivs')} {status('Seccomp')}")


@probe("X13", "a set-user-id program gains nothing")
def _():
    candidates = [p for p in ("/usr/bin/su", "/usr/bin/mount", "/usr/bin/passwd", "/usr/bin/newgrp", "/usr/bin/chsh")
                  if os.path.exists(p) and os.stat(p).st_mode & stat.S_ISUID]
    flags = os.statvfs("/usr").f_flag
    own = "/tmp/set-user-id"
    with open(own, "wb") as file:
        file.write(read("/usr/bin/id", 1 << 22))
    os.chmod(own, 0o4755)
    shown = subprocess.run([own], capture_output=True, text=True, check=False).stdout
    if "euid=" in shown or not flags & os.ST_NOSUID:
        raise Open(f"{shown} {flags}")
    raise Blocked(f"nosuid over {candidates}")


for name, call in {
    "setuid(0)": lambda: os.setuid(0), "setgid(0)": lambda: os.setgid(0), "setgroups": lambda: os.setgroups([0]),
    "setresuid(0)": lambda: os.setresuid(0, 0, 0), "chown to root": lambda: os.chown("/workspace", 0, 0),
    "nice -5": lambda: os.nice(-5), "negative priority": lambda: os.setpriority(os.PRIO_PROCESS, 0, -10),
}.items():
    probe("X13", name)(lambda call=call: expect_oserror(call, {errno.EPERM, errno.EACCES, errno.EINVAL}))


# X14: other ways into the kernel.
def machine_code(code):
    """Runs machine code in a child and returns how it ended: ('exit', n) or ('signal', n)."""
    import mmap

    child = os.fork()
    if child == 0:
        memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        memory.write(code)
        call = ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
        result = call()
        os._exit(0 if result in (-errno.ENOSYS, -errno.EPERM) else 1)
    _, end = os.waitpid(child, 0)
    return ("signal", os.WTERMSIG(end)) if os.WIFSIGNALED(end) else ("exit", os.WEXITSTATUS(end))


def foreign(code):
    end = machine_code(code)
    if end in (("signal", signal.SIGSYS), ("signal", signal.SIGSEGV), ("exit", 0)):
        raise Blocked(str(end))
    raise Open(str(end))


if not ARM:
    probe("X14", "32-bit entry: getpid")(lambda: foreign(b"\xb8\x14\x00\x00\x00\xcd\x80\x48\x98\xc3"))
    probe("X14", "32-bit entry: mount")(lambda: foreign(b"\xb8\x15\x00\x00\x00\xcd\x80\x48\x98\xc3"))
    probe("X14", "x32 number: getpid")(lambda: foreign(b"\xb8\x27\x00\x00\x40\x0f\x05\xc3"))
    probe("X14", "x32 number: ptrace")(lambda: foreign(b"\xb8\x09\x02\x00\x40\x0f\x05\xc3"))


# X20, X21: other processes.
@probe("X20", "a process of the host")
def _():
    expect_oserror(lambda: os.kill(fact("host_pid"), 0), {errno.ESRCH})


@probe("X20", "kill PID 1")
def _():
    try:
        os.kill(1, signal.SIGKILL)
    except OSError as error:
        if error.errno in (errno.EPERM, errno.ESRCH):
            raise Blocked(errno.errorcode[error.errno]) from None
        raise
    # Same user, where there is only one: the kernel drops the signal, and we are still here.
    raise Blocked("ignored")


@probe("X20", "kill everybody")
def _():
    child = subprocess.Popen(["sleep", "100"])
    os.kill(-1, signal.SIGTERM)
    if child.wait() == -signal.SIGTERM:
        raise Blocked("only its own child")
    raise Open("its own child lives")


@probe("X21", "processes that can be seen")
def _():
    pids = sorted(int(p) for p in os.listdir("/proc") if p.isdigit())
    if max(pids) < 3000 and len(pids) < 12:
        raise Blocked(str(pids))
    raise Open(str(pids)[:200])


# X22, X23, X24: the network.
@probe("X22", "an abstract socket of the host")
def _():
    client = socket.socket(socket.AF_UNIX)
    expect_oserror(lambda: client.connect("\0" + fact("abstract_socket")), {errno.ECONNREFUSED})


for path in ("/var/run/docker.sock", "/run/docker.sock", "/run/dbus/system_bus_socket", "/run/systemd/private",
             "/tmp/.X11-unix/X0", "/run/containerd/containerd.sock"):
    probe("X22", f"socket {path}")(
        lambda path=path: expect_oserror(lambda: socket.socket(socket.AF_UNIX).connect(path), {errno.ENOENT})
    )


@probe("X22", "a socket file of the host")
def _():
    expect_oserror(lambda: socket.socket(socket.AF_UNIX).connect(fact("unix_socket")), {errno.ENOENT})


@probe("X22", "a file of the host")
def _():
    expect_oserror(lambda: read(fact("host_file")), {errno.ENOENT, errno.EACCES})


def connect(family, address):
    client = socket.socket(family)
    client.settimeout(2)
    client.connect(address)


UNREACHABLE = {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ECONNREFUSED, errno.EADDRNOTAVAIL, errno.EACCES}
for name in ("127.0.0.1", "127.8.8.8", "0.0.0.0"):
    probe("X23", f"the server on {name}")(
        lambda name=name: expect_oserror(lambda: connect(socket.AF_INET, (name, fact("host_port"))), UNREACHABLE)
    )
for name in ("::1", "::ffff:127.0.0.1", "::"):
    probe("X23", f"the server on {name}")(
        lambda name=name: expect_oserror(lambda: connect(socket.AF_INET6, (name, fact("host_port"))), UNREACHABLE)
    )
for name in ("169.254.169.254", "10.0.0.1", "192.0.2.1", "224.0.0.1"):
    probe("X23", f"connect to {name}")(
        lambda name=name: expect_oserror(lambda: connect(socket.AF_INET, (name, 80)), UNREACHABLE)
    )
probe("X23", "connect to fe80::1")(
    lambda: expect_oserror(lambda: connect(socket.AF_INET6, ("fe80::1", 80)), UNREACHABLE | {errno.EINVAL})
)


@probe("X23", "interfaces")
def _():
    names = [name for _, name in socket.if_nameindex()]
    if names == ["lo"]:
        raise Blocked("lo")
    raise Open(str(names))


@probe("X23", "resolve a name")
def _():
    try:
        found = socket.getaddrinfo("example.com", 80)
    except socket.gaierror as error:
        raise Blocked(str(error)) from None
    raise Open(str(found))


@probe("X24", "bind a low port")
def _():
    expect_oserror(lambda: socket.socket().bind(("127.0.0.1", 80)), {errno.EACCES, errno.EPERM})


for name, request in {"promiscuous": 0x8914, "change the address": 0x8916, "change the MAC": 0x8924, "add a route": 0x890B}.items():
    probe("X24", name)(
        lambda request=request: expect_oserror(
            lambda: fcntl.ioctl(socket.socket(), request, struct.pack("16sH14x32x", b"lo", 0x100)), {errno.EPERM}
        )
    )
probe("X24", "SO_MARK")(
    lambda: expect_oserror(lambda: socket.socket().setsockopt(socket.SOL_SOCKET, 36, 1), {errno.EPERM})
)

# X19: shared memory of others.
@probe("X22", "System V memory of the host")
def _():
    expect_errno(lambda: syscall(194 if ARM else 29, fact("shm_key"), 1, 0), {errno.ENOENT})


# X30: what tells of the machine.
def generic(path):
    try:
        content = read(path, 4096)
    except OSError as error:
        raise Blocked(errno.errorcode[error.errno]) from None
    if content.strip():
        raise Open(repr(content[:100]))
    raise Blocked("empty")


for path in ("/proc/cmdline", "/proc/config.gz", "/proc/kallsyms", "/proc/interrupts", "/proc/keys", "/proc/key-users",
             "/proc/timer_list", "/proc/modules", "/proc/diskstats", "/proc/partitions", "/proc/kcore", "/proc/kmsg",
             "/proc/iomem", "/proc/ioports", "/proc/sys/kernel/random/boot_id", "/proc/slabinfo", "/proc/vmallocinfo",
             "/proc/sched_debug", "/proc/kpagecount", "/proc/scsi/scsi", "/proc/bus/pci/devices", "/proc/acpi/wakeup"):
    probe("X30", f"read {path}")(lambda path=path: generic(path))


@probe("X30", "host name")
def _():
    if socket.gethostname() == "sandbox" != fact("hostname"):
        raise Blocked("sandbox")
    raise Open(socket.gethostname())


@probe("X30", "paths of the host in the mounts")
def _():
    mounts = read("/proc/self/mountinfo").decode()
    found = [word for word in fact("host_words") if word in mounts]
    if found:
        raise Open(str(found))
    raise Blocked(f"{len(mounts.splitlines())} mounts")


for path in ("/sys/class/dmi/id/product_uuid", "/etc/shadow", "/etc/machine-id", "/etc/ssh", "/var/log", "/var/lib",
             "/root/.ssh", "/home/user", "/boot", "/srv", "/mnt", "/opt"):
    @probe("X30", f"{path} is not there")
    def _(path=path):
        if os.path.exists(path):
            raise Open(str(os.listdir(path) if os.path.isdir(path) else "there"))
        raise Blocked("absent")


# X31: limits cannot be raised.
for name in ("RLIMIT_NOFILE", "RLIMIT_NPROC", "RLIMIT_CORE", "RLIMIT_MEMLOCK", "RLIMIT_MSGQUEUE"):
    @probe("X31", f"raise {name}")
    def _(name=name):
        kind = getattr(resource, name, {"RLIMIT_MSGQUEUE": 12}.get(name))
        soft, hard = resource.getrlimit(kind)
        try:
            resource.setrlimit(kind, (hard + 1, hard + 1))
        except (ValueError, OSError) as error:
            raise Blocked(str(error)) from None
        raise Open(f"{hard} raised")


@probe("X31", "no core is dumped")
def _():
    child = os.fork()
    if child == 0:
        os.abort()
    _, end = os.waitpid(child, 0)
    if os.WCOREDUMP(end) or any("core" in name for name in os.listdir(".")):
        raise Open("a core")
    raise Blocked("none")


def main():
    counts = {"blocked": 0, "open": 0, "error": 0}
    for row, name, function in PROBES:
        try:
            function()
            verdict, detail = "error", "the probe gave no verdict"
        except Blocked as blocked:
            verdict, detail = "blocked", str(blocked)
        except Open as opened:
            verdict, detail = "open", str(opened)
        except Exception as error:  # a surprise is never a pass
            verdict, detail = "error", f"{type(error).__name__}: {error}"
        counts[verdict] += 1
        print(json.dumps({"row": row, "name": name, "verdict": verdict, "detail": detail}))
    print(json.dumps({"summary": counts}))


if __name__ == "__main__":
    main()
    sys.exit(0)
