"""More rights, other ways into the kernel, other processes. A part of the program that judge.py begins."""

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


@probe("X20", "change the limits of PID 1")
def _():
    expect_oserror(lambda: resource.prlimit(1, resource.RLIMIT_NOFILE, (64, 64)), {errno.EPERM})


@probe("X20", "become the user of the processes that serve a sandbox")
def _():
    expect_oserror(lambda: os.setuid(65535), {errno.EPERM})


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
