#!/usr/bin/python3 -I
"""Runs every snippet plainly and in each warm way, and prints where output or exit status differ.

    compare.py [language or part of a file name]... [--interpreter PATH] [--hooks FOLDER] [--jobs N]

`plain` is the runtime with the script as its argument. `parked` is one that was started before the script existed and
waited in `crates/engine/languages/…`. `forked` (Python) is a process forked from one that did. Each run has its own
bubblewrap: an empty /workspace, the variables of a slot, pipes as streams, uid 1000, no network.

Beside a snippet may stand `.stdin`, its input, and `.env`, lines of KEY=VALUE.
"""

import argparse
import concurrent.futures
import difflib
import fcntl
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
OURS = HERE.parent.parent / "crates/engine/languages"
VARIABLES = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/home/agbox", "LANG": "C.UTF-8", "USER": "agbox"}
PARK_ELIXIR = (
    "+sbwt none +sbwtdcpu none +sbwtdio none -eval application:ensure_all_started(elixir),"
    "'Elixir.Code':require_file(<<\"/run/ringfence/park.exs\">>),'Elixir.Ringfence.Park':main()"
)

# Stands in for zygote.py: forks one slot without isolating it, and says how it ended. Descriptor 3 is a socket, 5 is the
# request, 6 the report.
FORK = """
import os
import threading
import leave
LIBRARY = "/run/ringfence/library.so"
def serve(keep_everything):
    pid = os.fork()
    if pid:
        _, status = os.waitpid(pid, 0)
        os.write(6, b"\\nwaited %d" % status)
        os._exit(os.WTERMSIG(status) + 128 if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))
    for old, new in (5, 3), (6, 4):
        os.dup2(old, new)
        os.close(old)
    threading.main_thread()._set_native_id()
"""


def library():
    """The library that `cargo build` has made of `isolate`."""
    built = HERE.parent.parent.glob("target/zygote/*/init/libisolate.so")
    return next(built, None) or sys.exit("build the workspace first: cargo build")


class Way:
    def __init__(self, name, command, files=None, variables=None, descriptors=()):
        self.name, self.command, self.files, self.variables = name, command, files or {}, variables or {}
        self.descriptors = descriptors


def ways(language, interpreter, hooks):
    if language == "python":
        program = interpreter or "/usr/bin/python3"
        script = [program, "/workspace/main.py"]
        ours = hooks / "python"
        files = {"sitecustomize.py": (ours / "park.py").read_text(), "leave.py": (ours / "leave.py").read_text()}
        path = {"PYTHONPATH": "/run/ringfence", "RINGFENCE_PARK": "1"}
        # Without a buffer, since ours is emptied at every line.
        return [
            Way("plain", [program, "-u", "/workspace/main.py"]),
            Way("parked", script, files, path, ("request", "report")),
            Way("forked", script, {**files, "zygote.py": FORK, "library.so": library()}, path, ("socket", "report", "request", "report")),
        ]
    if language == "javascript":
        program = [interpreter or "/usr/bin/node"]
        # Decides by the code whether it is a module. Newer versions do so by themselves, version 18 cannot.
        version = subprocess.run(program + ["--version"], capture_output=True, text=True).stdout
        flags = [] if version.startswith("v18.") else ["--experimental-detect-module"]
        files = {"park.js": (hooks / "javascript/park.js").read_text()}
        hook = ["--require", "/run/ringfence/park.js"]
        return [
            Way("plain", program + flags + ["/workspace/main.js"]),
            Way("parked", program + hook + flags + ["/workspace/main.js"], files, {}, ("request", "report")),
        ]
    if language == "elixir":
        script = [interpreter or "/usr/bin/elixir", "/workspace/main.exs"]
        files = {"park.exs": (hooks / "elixir/park.exs").read_text()}
        return [
            Way("plain", script),
            Way("parked", script, files, {"ELIXIR_ERL_OPTIONS": PARK_ELIXIR}, ("request", "report")),
        ]
    script = [interpreter or "/bin/bash", "/workspace/main.sh"]
    return [Way("plain", script), Way("again", script)]


def run(way, snippet):
    """Returns (stdout, stderr, status) of one run."""
    variables = {}
    if (beside := snippet.with_suffix(".env")).exists():
        variables = dict(line.split("=", 1) for line in beside.read_text().splitlines())
    stdin = beside.read_bytes() if (beside := snippet.with_suffix(".stdin")).exists() else b""
    code = snippet.read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        for name in "workspace", "ours", "home", "tmp":
            os.mkdir(f"{folder}/{name}")
            os.chmod(f"{folder}/{name}", 0o777)
        for name, text in way.files.items():
            if isinstance(text, pathlib.Path):
                shutil.copy(text, f"{folder}/ours/{name}")
            else:
                pathlib.Path(folder, "ours", name).write_text(text)
        given = {**VARIABLES, **way.variables}
        if not way.descriptors:
            pathlib.Path(folder, "workspace/main" + snippet.suffix).write_bytes(code)
            given.update(variables)
        payload = b"".join(f"{k}={v}\0".encode() for k, v in variables.items()) + b"\0" + code
        return start(way, sandbox(folder, way, given) + way.command, stdin, payload)


def sandbox(folder, way, variables):
    arguments = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--uid", "1000", "--gid", "1000"]
    arguments += ["--hostname", "sandbox", "--clearenv", "--cap-drop", "ALL"]
    for name in "usr", "etc", "opt":
        arguments += ["--ro-bind-try", f"/{name}", f"/{name}"]
    for name in "bin", "sbin", "lib", "lib64":
        arguments += ["--symlink", f"usr/{name}", f"/{name}"]
    prefix = os.path.dirname(os.path.dirname(os.path.realpath(way.command[0])))
    if not prefix.startswith(("/usr", "/opt", "/bin")):
        arguments += ["--ro-bind", prefix, prefix]
    arguments += ["--proc", "/proc", "--dev", "/dev", "--ro-bind", f"{folder}/ours", "/run/ringfence"]
    arguments += ["--bind", f"{folder}/home", "/home/agbox", "--bind", f"{folder}/tmp", "/tmp"]
    arguments += ["--bind", f"{folder}/workspace", "/workspace", "--chdir", "/workspace"]
    for name, value in variables.items():
        arguments += ["--setenv", name, value]
    return arguments


def start(way, command, stdin, payload):
    """Runs a command; hands it its request once it says that it is ready. Checks what it reports against its end."""
    ends, theirs, report = {}, [], None
    for kind in way.descriptors:
        if kind not in ends:
            ends[kind] = os.pipe() if kind != "socket" else tuple(end.detach() for end in socket.socketpair())
        theirs.append(ends[kind][0 if kind == "request" else 1])
    moved = [fcntl.fcntl(fd, fcntl.F_DUPFD, 100) for fd in theirs]
    places = "".join(f" {i + 3}<&{fd}" for i, fd in enumerate(moved)) + "".join(f" {fd}<&-" for fd in moved)
    shell = ["/bin/bash", "-c", f'exec "$@"{places}', "bash"]
    child = subprocess.Popen(
        (shell if moved else []) + command,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=moved,
    )
    for fd in [*moved, *set(theirs)]:
        os.close(fd)
    try:
        if way.descriptors:
            if os.read(ends["report"][0], 6) == b"ready\n":
                with open(ends["request"][1], "wb") as request:
                    request.write(payload)
            else:
                os.close(ends["request"][1])
        out, err = child.communicate(stdin, timeout=60)
        status = child.returncode
        if way.descriptors:
            report = b""
            while part := os.read(ends["report"][0], 4096):
                report += part
            report = report.split(b"\nwaited ")[0]
            if report not in (b"", bytes([status & 255])):
                err += b"\n[reported %r, ended with %d]" % (report, status)
        return out, err, status
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        return b"", b"[timed out]", -1
    finally:
        if way.descriptors:
            os.close(ends["report"][0])


def compare(snippet, language_ways):
    results = [run(way, snippet) for way in language_ways]
    lines = []
    for way, result in zip(language_ways[1:], results[1:]):
        for what, first, second in zip(("stdout", "stderr", "status"), results[0], result):
            if first != second:
                texts = [value.decode(errors="replace") if isinstance(value, bytes) else f"{value}\n" for value in (first, second)]
                lines += difflib.unified_diff(*(t.splitlines() for t in texts), f"plain {what}", f"{way.name} {what}", n=1, lineterm="")
    return lines, results[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("only", nargs="*")
    parser.add_argument("--interpreter")
    parser.add_argument("--hooks", type=pathlib.Path, default=OURS)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--show", action="store_true", help="print what the plain run gave")
    options = parser.parse_args()
    snippets = sorted(
        path for path in HERE.glob("*/[0-9]*")
        if path.suffix in (".py", ".js", ".sh", ".exs") and (not options.only or any(part in str(path) for part in options.only))
    )
    different = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        of = {name: ways(name, options.interpreter, options.hooks) for name in {path.parent.name for path in snippets}}
        for path, (lines, plain) in zip(snippets, pool.map(lambda p: compare(p, of[p.parent.name]), snippets)):
            if options.show:
                print(f"== {path.parent.name}/{path.name}: {plain[2]}\n{plain[0].decode(errors='replace')}{plain[1].decode(errors='replace')}", end="")
            if lines:
                different += 1
                print(f"-- {path.parent.name}/{path.name}", *lines, sep="\n", flush=True)
    print(f"{len(snippets)} snippets, {different} differ")
    return different > 0


if __name__ == "__main__":
    if not shutil.which("bwrap"):
        raise SystemExit("bubblewrap is not installed")
    raise SystemExit(main())
