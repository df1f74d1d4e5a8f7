"""Calls and sockets that the filter refuses. A part of the program that judge.py begins."""

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
