def chain():
    received = yield "first"
    print("received", received)
    yield from range(2)
    return "result"
g = chain()
print(next(g), g.send("sent"), list(g))
