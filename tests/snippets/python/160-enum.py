import enum
class Color(enum.Enum):
    RED = 1
    BLUE = enum.auto()
print(list(Color), Color["RED"], Color(2))
