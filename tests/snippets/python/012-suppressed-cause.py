try:
    int("x")
except ValueError:
    raise TypeError("hidden") from None
