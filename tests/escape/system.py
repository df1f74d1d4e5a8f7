"""Programs, descriptors, settings, devices and terminals of the system. A part of the program that judge.py begins."""

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
    if left:
        raise Open(str({fd: _link(f"/proc/self/fd/{fd}") for fd in left}))
    raise Blocked("0, 1, 2")


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


# X12: requests that only drivers and administrators need.
for name, request in {"set a line discipline": 0x5423, "take the console": 0x541D, "hang up": 0x5437, "freeze a file system": 0xC0045877,
                      "trim a file system": 0xC0185879, "open a namespace": 0xB701, "physical blocks": 0x1}.items():
    probe("X12", name)(
        lambda request=request: expect_oserror(lambda: terminal(request), {errno.ENOTTY})
    )
