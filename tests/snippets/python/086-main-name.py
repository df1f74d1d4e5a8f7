print(__name__, __file__, __doc__, __package__, __spec__)
print(sorted(name for name in globals()))
