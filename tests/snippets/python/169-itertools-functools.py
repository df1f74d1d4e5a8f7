import itertools, functools
@functools.lru_cache
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
print(fib(80), list(itertools.permutations("abc", 2))[:3], functools.reduce(lambda a, b: a * b, range(1, 6)))
