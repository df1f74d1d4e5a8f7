import timeit
print(timeit.timeit("1 + 1", number=10) >= 0)
