class Meta(type):
    def __new__(mcs, name, bases, space):
        print("making", name)
        return super().__new__(mcs, name, bases, space)
class Made(metaclass=Meta): pass
print(type(Made).__name__, Made.__module__, Made.__qualname__)
