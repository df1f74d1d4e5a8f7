name, width = "x", 10
print(f"{name!r:>{width}}|{3.14159:.2f}|{255:#x}|{1000000:,}|{'ü':^5}|{name=}")
print("%s %5.1f %%" % ("a", 2), "{0}{1[k]}".format(1, {"k": 2}))
