import os, getpass, pathlib
print(os.getuid(), os.getgid(), os.getgroups(), getpass.getuser(), pathlib.Path.home(), os.path.expanduser("~/x"))
