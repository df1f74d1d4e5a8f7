"""Sockets of the host, and the network. A part of the program that judge.py begins."""

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
    # A sandbox has every port of its own network.
    if fact("has_low_ports"):
        socket.socket().bind(("127.0.0.1", 80))
        raise Blocked("its own network's")
    expect_oserror(lambda: socket.socket().bind(("127.0.0.1", 80)), {errno.EACCES, errno.EPERM})


for name, level, option in (("a filter", 1, 26), ("a program", 1, 50), ("a filter of a group", 1, 51),
                            ("a program of a group", 1, 52), ("a flow label", 41, 32)):
    probe("X24", f"give a socket {name}")(
        lambda level=level, option=option: expect_oserror(
            lambda: socket.socket(socket.AF_INET6).setsockopt(level, option, bytes(32)), {errno.EPERM}
        )
    )


for name, request in {"promiscuous": 0x8914, "change the address": 0x8916, "change the MAC": 0x8924, "add a route": 0x890B}.items():
    probe("X24", name)(
        lambda request=request: expect_oserror(
            lambda: fcntl.ioctl(socket.socket(), request, struct.pack("16sH14x32x", b"lo", 0x100)), {errno.EPERM, errno.ENOTTY}
        )
    )
probe("X24", "SO_MARK")(
    lambda: expect_oserror(lambda: socket.socket().setsockopt(socket.SOL_SOCKET, 36, 1), {errno.EPERM})
)

# X19: shared memory of others.
@probe("X22", "System V memory of the host")
def _():
    expect_errno(lambda: syscall(194 if ARM else 29, fact("shm_key"), 1, 0), {errno.ENOENT, errno.ENOSYS})
