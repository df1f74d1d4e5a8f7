"""Lets a forked slot end without paying for the zygote's memory.

The interpreter's own finalisation runs, and the exit status is its own: threads are joined, exit handlers called, the
program's objects finalised, its streams flushed. What is left out no program can see: modules of the start are not
cleared one by one, no object of the start is freed, the interpreter does not give back its tables, and libraries loaded at
the start are not told. In a forked process each of these steps would copy pages only to free them, which is many times
the work of a short program.
"""

import atexit
import ctypes
import gc
import sys

KEPT = {"__main__", "sys", "builtins", "asyncio.events"}  # The last one holds the program's event loop.


class Ending(ctypes.Structure):
    """Says at which event to stop, see `isolate/src/sys/library.rs`."""

    _fields_ = [
        ("event", ctypes.c_char_p),
        ("spoiler", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("barrier", ctypes.c_void_p),
        ("armed", ctypes.POINTER(ctypes.c_int)),
        ("is_spoiled", ctypes.c_int),
    ]


def prepare(native, given, library):
    """Arranges the end of every process forked later. `native` and `given`: names of modules not of the program."""
    modules = sys.modules
    armed = ctypes.c_int(0)
    streams = sys.stdout, sys.stderr

    def forget():
        if sys._getframe().f_back:
            return  # It is the program that calls exit handlers, and it goes on.
        for names in native, given:
            for name in names:
                if name not in KEPT:
                    modules.pop(name, None)
        if streams == (sys.stdout, sys.stderr):  # Streams of the program's own may do anything when they are flushed.
            try:
                for stream in streams:
                    stream.flush()
                armed.value = 1
            except (OSError, ValueError):
                pass  # The interpreter will fail at this as well, and says so in its exit status.

    atexit.register(forget)  # Registered first, so it is called last.
    library = ctypes.CDLL(library)
    # After this event the interpreter only gives back memory. A hook of the program's own would hear of it.
    python = ctypes.pythonapi
    ending = Ending(b"cpython.PyInterpreterState_Clear", b"sys.addaudithook", address(python.Py_FinalizeEx),
                    address(python.Py_EndInterpreter), ctypes.pointer(armed))
    python.Py_IncRef(ctypes.py_object(ending))  # It is used when all references are gone.
    python.PySys_AddAuditHook(library.ringfence_hear, ctypes.byref(ending))
    # At the very end, before the handlers of libraries loaded so far: OpenSSL's above all. What the program loads is
    # called before these.
    library.ringfence_leave_quickly()


def address(function):
    return ctypes.cast(function, ctypes.c_void_p)


def keep_everything():
    """Lets no object that exists now be freed, or looked at by the collector, ever again: but for the main module."""
    gc.collect()
    main = {id(sys.modules["__main__"]), id(vars(sys.modules["__main__"]))}
    everything = [thing for thing in gc.get_objects() if id(thing) not in main]
    everything.append(everything)
    gc.freeze()
    for address in main:  # Tracked anew, they are the collector's again, and with them what the program puts there.
        ctypes.pythonapi.PyObject_GC_UnTrack(ctypes.c_void_p(address))
        ctypes.pythonapi.PyObject_GC_Track(ctypes.c_void_p(address))
