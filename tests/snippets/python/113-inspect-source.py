import inspect
def sample(a, b=2):
    """Doc."""
    return a + b
print(inspect.getsource(sample), inspect.signature(sample), inspect.getmodule(sample).__name__)
