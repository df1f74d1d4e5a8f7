"""What tells of the machine, and its limits. The last part of the program that judge.py begins: it runs all."""

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
             "/proc/sched_debug", "/proc/kpagecount", "/proc/scsi/scsi", "/proc/bus/pci/devices", "/proc/acpi/wakeup",
             "/proc/vmstat", "/proc/pressure/cpu", "/proc/pressure/memory", "/proc/pressure/io", "/proc/cgroups", "/proc/zoneinfo",
             "/proc/buddyinfo", "/proc/softirqs", "/proc/schedstat", "/proc/locks", "/proc/devices", "/proc/misc", "/proc/tty/drivers",
             "/proc/sys/fs/file-nr", "/proc/sys/fs/inode-nr", "/proc/sys/fs/dentry-state", "/proc/sys/kernel/pty/nr"):
    probe("X30", f"read {path}")(lambda path=path: generic(path))


for path in ("/proc/stat", "/proc/meminfo", "/proc/loadavg"):
    @probe("X30", f"{path} shows what the machine is doing")
    def _(path=path):
        before = read(path)
        # Counters of the whole machine would move.
        sum(number * number for number in range(1 << 20))
        memory = bytearray(1 << 24)
        if read(path) != before:
            raise Open("it changes")
        if path == "/proc/stat" and any(line.split()[1:] != ["0"] * 10 for line in before.decode().splitlines() if line.startswith("cpu")):
            raise Open("counters")
        raise Blocked(f"the same, {len(memory)} bytes later")


@probe("X30", "entries of /proc beside processes and those of the list")
def _():
    listed = {"cpuinfo", "filesystems", "loadavg", "meminfo", "mounts", "net", "self", "stat", "sys", "sysvipc", "thread-self",
              "uptime", "version"}
    shown = []
    for name in os.listdir("/proc"):
        path = f"/proc/{name}"
        if name in listed or name.isdigit():
            continue
        try:
            if os.listdir(path) if os.path.isdir(path) else read(path, 1):
                shown.append(name)
        except OSError:
            pass
    if shown:
        raise Open(str(shown))
    raise Blocked("nothing")


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
