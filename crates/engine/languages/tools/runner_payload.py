"""Unpacks what the server sends to a run on stdin.

It is a 4-byte big-endian length, a JSON header of that length, and the bytes of the files back to back:

    {"entrypoint": "run_tool", "files": [{"path": "script.py", "bytes": 120}, {"path": "input/data.csv", "bytes": 64}]}
"""

import json
import os

HEADER_MAX = 1 << 20
PATH_MAX = 4096


class Refused(ValueError):
    """The payload is not valid."""


def unpack(base):
    """Writes the files of the payload and returns the name of the entrypoint."""
    size = int.from_bytes(read_stdin(4), "big")
    if size > HEADER_MAX:
        raise Refused(f"the header has {size} bytes, more than {HEADER_MAX}")
    entrypoint, files = check_header(json.loads(str(read_stdin(size), "utf-8")))
    for folder in "input", "output":
        os.makedirs(f"{base}/{folder}", exist_ok=True)
    for path, size in files:
        if "/" in path:
            os.makedirs(os.path.dirname(f"{base}/{path}"), exist_ok=True)
        with open(f"{base}/{path}", "xb") as file:  # Fails if the path exists.
            for part in stdin_parts(size):
                file.write(part)
    return entrypoint


def read_stdin(size):
    return b"".join(stdin_parts(size))


def stdin_parts(size):
    while size:
        part = os.read(0, min(size, 1 << 16))  # as much as a pipe holds
        if not part:
            raise Refused(f"the payload ends {size} bytes early")
        size -= len(part)
        yield part


def check_header(header):
    if not isinstance(header, dict) or not isinstance(header.get("files"), list):
        raise Refused("the header has no list of files")
    entrypoint = header.get("entrypoint")
    if not isinstance(entrypoint, str) or not entrypoint.strip():
        raise Refused("the header has no entrypoint")
    files = [check_file(file) for file in header["files"]]
    if "script.py" not in (path for path, _ in files):
        raise Refused("the header has no script.py")
    return entrypoint.strip(), files


def check_file(file):
    path, size = (file.get("path"), file.get("bytes")) if isinstance(file, dict) else (None, None)
    if not isinstance(path, str) or type(size) is not int or size < 0:
        raise Refused(f"not a file with path and bytes: {repr(file)[:200]}")
    names = path.split("/")
    if not {"", ".", ".."}.isdisjoint(names) or "\0" in path or len(path) > PATH_MAX or path == "result.json":
        raise Refused(f"not a path for a file: {repr(path)[:200]}")
    return path, size
