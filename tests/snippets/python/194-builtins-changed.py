import builtins
builtins.shout = lambda text: print(text.upper())
shout("everywhere")
real = builtins.print
builtins.print = lambda *a: real("wrapped", *a)
print("x")
