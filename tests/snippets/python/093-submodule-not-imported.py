import concurrent, logging, urllib, importlib, os
for package, name in (logging, "handlers"), (urllib, "parse"), (urllib, "request"), (importlib, "util"), (concurrent, "futures"), (os, "path"):
    print(package.__name__, name, hasattr(package, name))
import urllib.parse
print(hasattr(urllib, "parse"), hasattr(urllib, "request"))
