import inspect
def where():
    return [(frame.function, frame.lineno, frame.filename) for frame in inspect.stack()]
print(where())
