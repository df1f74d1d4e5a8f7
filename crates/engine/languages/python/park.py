"""Parks a Python that was started with its real command line, until its one request arrives.

Installed as `sitecustomize.py` in a directory of its own that PYTHONPATH names, beside `zygote.py`. The interpreter
imports it while it starts, before it looks at the script. It blocks there, applies the request, and returns: the
interpreter then opens and runs the script as it would have done anyway, so tracebacks, `__main__`, exit codes and
finalisation are its own.

Descriptor 3 decides the mode. A pipe: this process is one slot (`strict` freshness). A Unix socket: this process is
the zygote and every slot is forked from it, see `zygote.py`.

In a slot, descriptor 3 carries the request up to end of file: `KEY=VALUE\\0` for each variable, one lone `\\0`, the
code. Descriptor 4 takes one line, `ready` or `error <step> <errno>`. Both are closed before the code runs.

What must not differ from a plain start is undone here: the path entry, PYTHONPATH, this module, and also the preloaded
modules, which stay out of `sys.modules` until the code imports them. Works with CPython 3.9 to 3.13.
"""

import os
import stat
import sys

# Imported in advance, so that an import costs microseconds. None of them starts a thread, keeps a descriptor or
# draws a random number that a later import would not draw again after the fork.
PRELOAD = """
    abc argparse array ast asyncio base64 binascii bisect calendar cmath codecs collections.abc concurrent.futures.thread
    contextlib contextvars copy csv ctypes dataclasses datetime decimal difflib enum errno fcntl fnmatch fractions functools
    glob gzip hashlib heapq hmac html http.client importlib.util inspect io itertools json keyword linecache locale logging
    math numbers operator pathlib pickle platform pprint queue random re reprlib secrets select selectors shlex shutil
    signal socket sqlite3 ssl stat statistics string struct subprocess tempfile textwrap threading timeit token tokenize
    traceback types typing unicodedata unittest urllib.error urllib.parse urllib.request uuid warnings weakref zlib
"""

NEEDED = ["atexit", "linecache", "traceback"]  # by this file itself

# Modules of runs of tools, in a folder that only those runs have in `sys.path`.
TOOLS = os.path.join(os.path.dirname(os.path.dirname(__file__)), "tools")
TOOL_MODULES = "runner ringfence_tool skriptoteket_toolkit tool_errors pdf_helper".split()

# Exercises what nearly every program uses, so that caches are filled (and, in a slot, pages are touched).
WARM_UP = """
import io, sys, traceback
def scale(by, *values, **named):
    return [value * by for value in values] + sorted(named)
class Point:
    def __init__(self, x): self.x = x
    def __repr__(self): return f"Point({self.x!r:>4})"
out = io.StringIO()
print(scale(2, 1, 2.5, a="b"), Point("x"), {"k": [None, True]}, file=out)
try:
    try:
        {}["missing"]
    except KeyError as error:
        raise ValueError("warm") from error
except ValueError:
    traceback.print_exc(file=out)
sys.stdout.flush()
"""


def main():
    is_first = os.environ.pop("RINGFENCE_PARK", None)
    here = os.path.dirname(__file__)
    sys.path.remove(here)
    sys.path_importer_cache.pop(here, None)
    if not is_first:  # Another interpreter that the program has started.
        use_system_site()
        return
    os.environ.pop("PYTHONPATH", None)
    finish_site()
    is_zygote = stat.S_ISSOCK(os.fstat(3).st_mode)
    ours = ["leave", "zygote"] if is_zygote else []
    preloaded = Preloaded()
    sys.path.insert(0, here)
    preloaded.load(NEEDED + (os.environ.pop("RINGFENCE_PRELOAD", None) or PRELOAD).split() + ours)
    sys.path.remove(here)
    if is_zygote:
        sys.path.insert(0, TOOLS)
        preloaded.load(TOOL_MODULES)
        sys.path.remove(TOOLS)
    leave, zygote = (sys.modules.pop(name) for name in ours) if ours else (None, None)

    sys.stdout.reconfigure(line_buffering=True)  # Output is streamed, also into a pipe.
    forget_types = getattr(sys, "_clear_internal_caches", None) or sys._clear_type_cache
    forget_types()  # At exit each entry costs a page.
    exec(compile(WARM_UP, "<warm-up>", "exec"), {"__name__": "<warm-up>"})
    sys.modules["linecache"].clearcache()
    preloaded.hide()
    if zygote:
        leave.keep_everything()
        leave.prepare(preloaded.native, preloaded.given, zygote.LIBRARY)
        zygote.serve(leave.keep_everything)  # Returns in each new slot, never in the zygote.
    os.write(4, b"ready\n")
    os.close(4)
    start(read_to_end(3))


def use_system_site():
    del sys.modules["sitecustomize"]
    try:
        import sitecustomize  # The system's own, which this file was found before.
    except ImportError:
        pass


def finish_site():
    """Runs now what `site` would still do after this file, because none of it depends on the request."""
    use_system_site()
    site = sys.modules["site"]
    if site.ENABLE_USER_SITE:
        native = site.execusercustomize
        native()

        def once():
            site.execusercustomize = native

        site.execusercustomize = once


class Preloaded:
    """Modules loaded in advance that look unloaded until the code imports them.

    They are taken out of `sys.modules`, and their packages forget them. The import system then searches for them as
    ever, so a file of the same name in front of the standard library wins; but when it asks the loader for a new
    module object, it gets the loaded one. With a module come all those that its own import would have loaded.
    """

    def __init__(self):
        self.native = set(sys.modules)  # what a plain start has loaded as well
        self.folders = set(sys.path_importer_cache)
        self.modules = {}  # name -> module, not yet handed over
        self.imports = {}  # name -> names that loading it imports, in order
        self.at_exit = {}  # name -> arguments of its calls of `atexit.register`
        self.at_fork = {}  # name -> arguments of its calls of `os.register_at_fork`
        self.parents = {}  # name -> package that has it as an attribute
        self.given = []

    def load(self, names):
        import _frozen_importlib as bootstrap
        import atexit
        import builtins

        loading, known = [""], set(sys.modules)
        load, find = bootstrap._load_unlocked, builtins.__import__
        self.register, self.register_at_fork = atexit.register, os.register_at_fork

        def note(name):
            self.imports.setdefault(loading[-1], {})[name] = True

        def noting_load(spec):
            note(spec.name)
            known.add(spec.name)
            loading.append(spec.name)
            try:
                module = load(spec)
                for name in [name for name in sys.modules if name not in known]:
                    known.add(name)
                    note(name)  # Put there by hand, as `collections.abc` is.
                return module
            finally:
                loading.pop()

        def noting_import(name, globals=None, locals=None, fromlist=(), level=0):
            module = find(name, globals, locals, fromlist, level)
            if level:
                package = bootstrap._calc___package__(globals)
                name = bootstrap._resolve_name(name, package, level)
            for end in [i for i, c in enumerate(name) if c == "."] + [len(name)]:
                note(name[:end])
            for child in fromlist or ():
                if f"{name}.{child}" in sys.modules:
                    note(f"{name}.{child}")
            return module

        def noting_register(*call, **named):
            self.at_exit.setdefault(loading[-1], []).append((call, named))
            return call[0]

        def noting_register_at_fork(**hooks):
            self.at_fork.setdefault(loading[-1], []).append(hooks)

        bootstrap._load_unlocked, builtins.__import__ = noting_load, noting_import
        atexit.register, os.register_at_fork = noting_register, noting_register_at_fork
        try:
            for name in names:
                try:
                    noting_import(name)
                except ImportError:
                    pass  # Not every build has every module.
        finally:
            bootstrap._load_unlocked, builtins.__import__ = load, find
            atexit.register, os.register_at_fork = self.register, self.register_at_fork

    def hide(self):
        import _frozen_importlib as bootstrap
        import _frozen_importlib_external as external

        for name in [name for name in sys.modules if name not in self.native]:
            self.modules[name] = sys.modules.pop(name)
        for name, module in self.modules.items():
            package, _, child = name.rpartition(".")
            parent = self.modules.get(package) or sys.modules.get(package)
            if parent and vars(parent).get(child) is module:
                delattr(parent, child)
                self.parents[name] = parent
        for folder in set(sys.path_importer_cache) - self.folders:
            del sys.path_importer_cache[folder]
        self.finders = list(sys.meta_path)
        self.list_directory = os.listdir
        self.standard = os.path.dirname(os.__file__)

        for loader in external._LoaderBasics, external.ExtensionFileLoader:
            loader.create_module = self.handing_over(loader.create_module, None)
        for loader in bootstrap.BuiltinImporter, bootstrap.FrozenImporter:
            loader.create_module = staticmethod(self.handing_over(None, loader.create_module))

    def handing_over(self, of_instance, of_class):
        """Wraps a loader's `create_module`."""
        if of_instance:
            def create_module(loader, spec):
                return self.take(spec) or of_instance(loader, spec)
        else:
            def create_module(spec):
                return self.take(spec) or of_class(spec)
        # Frames of this file name are left out of tracebacks, like those of the import system itself.
        create_module.__code__ = create_module.__code__.replace(co_filename="<frozen importlib._bootstrap>")
        return create_module

    def take(self, spec):
        """Returns the loaded module for `spec`, unless a plain import would find or build another one."""
        module = self.modules.get(spec.name)
        own = module and module.__spec__
        if not own or own.origin != spec.origin or sys.meta_path != self.finders:
            return None
        needed = []
        if not self.gather(spec.name, {spec.name}, needed) or self.overshadowed(needed):
            return None
        del self.modules[spec.name]
        spec.loader = HandOver(self, own, needed)
        return module

    def gather(self, name, seen, needed):
        """Appends what `name` needs, in the order in which it would have been loaded. False if one was replaced."""
        for other in self.imports.get(name, ()):
            if other in seen:
                continue
            seen.add(other)
            if other in self.modules:
                if other in sys.modules or not self.gather(other, seen, needed):
                    return False
                needed.append(other)
            elif other not in self.native and other not in sys.modules:
                return False
        return True

    def overshadowed(self, names):
        """Whether a directory searched before the standard library has something of one of these names."""
        tops = {name.partition(".")[0] for name in names}
        for entry in sys.path:
            if entry == self.standard:
                return False
            if entry == TOOLS:
                continue
            try:
                if not tops.isdisjoint(file.partition(".")[0] for file in self.list_directory(entry or ".")):
                    return True
            except OSError:
                pass
        return False

    def give(self, name):
        """Does what loading `name` would have left behind."""
        self.given.append(name)
        module = self.modules.pop(name, None)
        if module:
            sys.modules[name] = module
            if name in self.parents:
                setattr(self.parents[name], name.rpartition(".")[2], module)
        for call, named in self.at_exit.pop(name, ()):
            self.register(*call, **named)
        for hooks in self.at_fork.pop(name, ()):
            hooks.get("after_in_child", int)()  # There was a fork since it was loaded.
            self.register_at_fork(**hooks)
        # What the interpreter does not renew by itself.
        if name == "threading" and hasattr(main := sys.modules[name].main_thread(), "_set_native_id"):
            main._set_native_id()
        if name == "multiprocessing.process":
            sys.modules[name].current_process().authkey = os.urandom(32)


class HandOver:
    """Stands in for the loader of one import: there is nothing left to execute."""

    def __init__(self, preloaded, own, needed):
        self.preloaded, self.own, self.needed = preloaded, own, needed

    def exec_module(self, module):
        module.__spec__ = self.own
        for name in [*self.needed, self.own.name]:
            self.preloaded.give(name)


def read_to_end(fd):
    parts = []
    while part := os.read(fd, 1 << 16):  # as much as a pipe holds
        parts.append(part)
    os.close(fd)
    return b"".join(parts)


def start(request):
    """Applies the request and leaves the rest to the interpreter."""
    variables, end, code = (b"", b"\0", request[1:]) if request[:1] == b"\0" else request.partition(b"\0\0")
    if not end:
        os._exit(1)  # The slot was given up.
    for variable in variables.split(b"\0") if variables else ():
        name, _, value = variable.partition(b"=")
        os.environb[name] = value
        if name == b"TZ":
            sys.modules["time"].tzset()
    try:
        with open(sys.argv[0], "wb") as script:
            script.write(code)
    except OSError as error:
        os.write(2, f"cannot write {sys.argv[0]}: {error.strerror}\n".encode())
        os._exit(1)


try:
    main()
except BaseException as error:
    os.write(2, f"cannot park: {error!r}\n".encode())
    os._exit(1)
if "sitecustomize" not in sys.modules:
    # For `site`: there is no such module. It says so of a plain start, and the import system forgets this one.
    raise ImportError(name="sitecustomize")
