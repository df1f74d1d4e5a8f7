import warnings
for entry in warnings.filters:
    print(entry[0], entry[2].__name__, entry[3])
