import contextlib
@contextlib.contextmanager
def step(name):
    print("enter", name)
    try:
        yield
    finally:
        print("leave", name)
with contextlib.suppress(ValueError), step("a"):
    raise ValueError
with step("b"):
    raise KeyError("out")
