import importlib.util
for name in "json", "asyncio", "csv", "math", "nothing_like_it":
    spec = importlib.util.find_spec(name)
    print(name, spec and type(spec.loader).__name__, spec and spec.origin)
import sys
print("csv" in sys.modules)
