"""The containment matrix, run inside a slot.

Every probe tries something that must not work and judges by effect: `blocked` needs the very answer
that the matrix allows; anything else is `open`, and a surprise in the probe itself is `error`. One
JSON line for each. Even a hit would do no harm: arguments are invalid wherever the call could act.

This is the first part of one program. The others, in this order, are calls.py, system.py, rights.py, network.py and
machine.py: whoever runs it has it as one text.
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
