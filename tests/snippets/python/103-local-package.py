import os
os.makedirs("pkg/sub")
open("pkg/__init__.py", "w").write("from .sub import value\n")
open("pkg/sub/__init__.py", "w").write("value = __name__\n")
import pkg
print(pkg.value, pkg.__path__)
