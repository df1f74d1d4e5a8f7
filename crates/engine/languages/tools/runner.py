"""Runs one tool: unpacks its files from stdin, calls its entrypoint, writes `result.json`.

The folder of SKRIPTOTEKET_RESULT_PATH (default /work) is the base: it holds the script, `input/` and `output/`. A
payload that is not valid ends the process with status 2 before any code of the tool runs. Every other run writes
`result.json` and ends with status 0, also when the tool fails. Works with CPython 3.9 to 3.13.
"""

import json
import os
import sys

from runner_json import Failure, clean, convert_result, text_of, type_name
from runner_payload import unpack

SUMMARY_MAX = 20_000  # characters
GRACE = 1.0  # seconds that threads and processes of the tool get to end by themselves
SOURCE_WIDTH = 160  # characters of a line with a syntax error


def main(base=None):
    base = base or os.path.dirname(os.environ.get("SKRIPTOTEKET_RESULT_PATH", "")) or "/work"
    pid = os.getpid()
    try:
        entrypoint = unpack(base)
        prepare(base)
    except (ValueError, OSError, RecursionError) as error:
        print_error(f"cannot start the tool: {error}\n")
        os._exit(2)
    result = run(base, entrypoint)
    if os.getpid() != pid:  # A process that the tool forked came back from the entrypoint too.
        flush(*standard_streams())
        os._exit(0)
    result["artifacts"] = list_artifacts(base)
    try:
        write_result(base, result)
    except OSError as error:
        print_error(f"cannot write result.json: {error}\n")
        os._exit(1)
    end()


def prepare(base):
    """Makes this process look as if `script.py` had been started in the base folder, without stdin."""
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)  # sys.stdin has buffered nothing yet, so it reads from here too.
    os.close(null)
    home = os.environ["HOME"] = os.environ.get("HOME") or "/tmp/home"
    os.makedirs(home, exist_ok=True)
    os.chdir(base)
    here, start = os.path.dirname(__file__), os.path.dirname(sys.argv[0])
    sys.path[:] = [base, here, *(folder for folder in sys.path if folder not in (here, start))]
    sys.argv[:] = [f"{base}/script.py"]
    sys.modules.pop("runner", None)  # The tool may have a module of this name.


def run(base, entrypoint):
    """Runs the tool. Returns its result without the artifacts."""
    outputs, next_actions, state, summary = [], [], None, None
    try:
        module = load(f"{base}/script.py")
        returned = call(module, entrypoint, f"{base}/input", f"{base}/output")
        outputs, next_actions, state = convert_result(returned)
    except Failure as failure:
        summary = str(failure)
        if failure.__cause__:
            print_traceback(failure.__cause__)
        else:
            print_error(f"{summary}\n")
    except BaseException as error:
        summary = summarise(error)
        print_traceback(error)
    return {
        "contract_version": 2,
        "status": "failed" if summary else "succeeded",
        "error_summary": summary,
        "outputs": outputs,
        "next_actions": next_actions,
        "state": state,
    }


def load(path):
    with open(path, "rb") as file:
        source = file.read()
    try:
        code = compile(source, path, "exec", dont_inherit=True)
    except SyntaxError as error:
        error = find_syntax_error(source, path) or error
        raise Failure(describe_syntax_error(error)) from error
    module = type(sys)("tool_script")
    module.__file__ = path
    sys.modules["tool_script"] = module  # pickle and dataclasses look it up.
    exec(code, vars(module))
    return module


def find_syntax_error(source, path):
    """Compiles the decoded text to find the exact column and the whole line.

    For a source of bytes, CPython before 3.13 counts bytes; and it reads the line from the file, and cuts a long one.
    """
    from importlib.util import decode_source

    try:
        text = decode_source(source)
    except (SyntaxError, UnicodeDecodeError):
        return None
    try:
        compile(text, "<script>", "exec", dont_inherit=True)  # There is no such file to read the line from.
    except SyntaxError as error:
        error.filename, error.text = path, "".join(text.split("\n")[(error.lineno or 0) - 1 :][:1])
        error.__cause__ = None  # Else the error for the bytes would be printed too.
        return error


def call(module, entrypoint, *folders):
    function = vars(module).get(entrypoint)
    if function is None:
        raise Failure(f"The script has no function {clean(entrypoint)!r}.")
    if not callable(function):
        raise Failure(f"{clean(entrypoint)!r} is not a function.")
    returned = function(*folders)
    if hasattr(type(returned), "__await__"):
        import asyncio

        returned = asyncio.run(finish(returned))
    return returned


async def finish(awaitable):
    return await awaitable


def describe_syntax_error(error):
    """Returns the message and the place, and the line of the script with a caret below it."""
    number, column = error.lineno or 0, error.offset or 0
    place = f" (line {number}, column {column})" if number > 0 and column > 0 else ""
    summary = clean(f"{type(error).__name__}: {error.msg}{place}")
    line = "".join((error.text or "").splitlines()[:1]).rstrip()
    if not place or not line:
        return summary
    first = max(len(line) - len(line.lstrip()), column - SOURCE_WIDTH // 2)
    shown = clean(line[first : first + SOURCE_WIDTH])
    before = "".join(c if c == "\t" else " " for c in shown[: max(0, column - 1 - first)])
    return f"{summary}\n    {shown}\n    {before}^"


def summarise(error):
    """Returns the text of a ToolUserError. Of other errors only the type is shown: their text may hold internals."""
    intended = getattr(sys.modules.get("ringfence_tool"), "ToolUserError", ())
    text = text_of(error).strip() if isinstance(error, intended) else ""
    return text[:SUMMARY_MAX] or f"Tool execution failed ({type_name(error)})."


def print_traceback(error):
    """Prints the traceback without the frames before the script."""
    try:
        import traceback

        frames = rest = error.__traceback__
        while rest:
            if rest.tb_frame.f_code.co_filename == main.__code__.co_filename:
                frames = rest.tb_next
            rest = rest.tb_next
        text = "".join(traceback.format_exception(type(error), error, frames))
    except BaseException:  # Printing an exception calls methods of its class.
        text = f"{type_name(error)}\n"
    print_error(text)


def print_error(text):
    """Writes to descriptor 2 itself: the tool may have replaced or closed sys.stderr."""
    flush(*standard_streams())
    rest = text.encode("utf-8", "backslashreplace")
    try:
        while rest:
            rest = rest[os.write(2, rest) :]
    except OSError:
        pass


def list_artifacts(base):
    """Lists the regular files below `output/`. Follows no links."""
    found, folders = [], [] if os.path.islink(f"{base}/output") else ["output"]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(f"{base}/{folder}") as entries:
                for entry in entries:
                    path = f"{folder}/{entry.name}"
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(path)
                    elif entry.is_file(follow_symlinks=False):
                        found.append({"path": clean(path), "bytes": entry.stat(follow_symlinks=False).st_size})
        except OSError:
            pass  # The tool left a folder that it cannot read itself, or one of its threads is removing files.
    return sorted(found, key=lambda file: file["path"])


def write_result(base, result):
    """Writes under another name first, so that a half-written `result.json` never exists."""
    temporary = f"{base}/.result.{os.getpid()}"
    with open(temporary, "xb") as file:
        file.write(json.dumps(result, allow_nan=False, ensure_ascii=False).encode())
    os.replace(temporary, f"{base}/result.json")


def end():
    """Returns if the interpreter can end the process by itself. Otherwise ends it.

    The interpreter would wait for threads that the tool left, up to the time limit of the run, and can abort while a
    daemon thread prints. So if threads are left after GRACE, the process ends without them. What a tool relies on is
    done before: exit handlers run, and buffered files are written.
    """
    has_threads = wait_for_leftovers()
    if has_threads:
        run_exit_handlers()
        flush(*open_files())
    if not flush(*standard_streams()):
        sys.stdout = sys.stderr = None  # Else the interpreter tries again and ends with status 120.
    if has_threads:
        os._exit(0)


def wait_for_leftovers():
    """Waits a moment for what the tool left running. Returns whether threads are still running."""
    processes = sys.modules.get("multiprocessing.process")
    children = [child for child in processes.active_children() if not child.daemon] if processes else []
    if not children and not threads():
        return False
    import time

    deadline = time.monotonic() + GRACE
    for left in [thread for thread in threads() if not thread.daemon] + children:
        left.join(max(0, deadline - time.monotonic()))
    for child in children:
        child.kill()  # Its exit handler would wait for it.
    return bool(threads())


def threads():
    threading = sys.modules.get("threading")
    return [thread for thread in threading.enumerate() if thread is not threading.current_thread()] if threading else []


def run_exit_handlers():
    import atexit

    try:
        atexit._run_exitfuncs()
    except BaseException:
        pass  # CPython 3.9 raises again what a handler raised, after it has printed it.


def open_files():
    """Lists the files that may have buffered something, text layers before the layers that they write to."""
    import gc
    import io

    objects = gc.get_objects()
    return [file for kind in (io.TextIOWrapper, io.BufferedWriter) for file in objects if type(file) is kind]


def standard_streams():
    return getattr(sys, "stdout", None), getattr(sys, "stderr", None)


def flush(*streams):
    """Flushes streams that the tool may have closed or replaced. Returns whether each could be flushed."""
    is_flushed = True
    for stream in streams:
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except BaseException:
            is_flushed = False
    return is_flushed
