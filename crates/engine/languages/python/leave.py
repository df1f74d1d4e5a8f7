"""Lets a forked slot end without paying for the zygote's memory.

The interpreter's own finalisation runs, and the exit status is its own: threads are joined, exit handlers called, the
program's objects finalised, its streams flushed. What is left out no program can see: modules of the start are not
cleared one by one, no object of the start is freed, and libraries loaded at the start are not told. In a forked process
each of these steps would copy pages only to free them, which is many times the work of a short program.
"""

import atexit
import ctypes
import gc
import sys

KEPT = {"__main__", "sys", "builtins", "asyncio.events"}  # The last one holds the program's event loop.


def prepare(native, given):
    """Arranges the end of every process forked later. `native` and `given`: names of modules not of the program."""
    modules = sys.modules

    def forget():
        if sys._getframe().f_back:
            return  # It is the program that calls exit handlers, and it goes on.
        for names in native, given:
            for name in names:
                if name not in KEPT:
                    modules.pop(name, None)

    atexit.register(forget)  # Registered first, so it is called last.
    libc = ctypes.CDLL(None)
    if hasattr(libc, "on_exit"):
        # C's exit(status) calls f(status, argument) in reverse order: it closes C's streams and ends here, before it comes
        # to handlers of libraries loaded so far, OpenSSL's above all. What the program loads is called before these.
        for step in libc._exit, libc.fcloseall:
            libc.on_exit(ctypes.cast(step, ctypes.c_void_p), None)


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
