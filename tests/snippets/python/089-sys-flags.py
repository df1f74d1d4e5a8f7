import sys
print([(name, getattr(sys.flags, name)) for name in dir(sys.flags) if not name.startswith(("_", "n_", "index", "count", "unbuffered"))])
print(sys.warnoptions, sys._xoptions, sys.dont_write_bytecode)
