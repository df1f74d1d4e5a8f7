print("a", end="")
print("b", end=" ")
print("c", flush=True)
print("tail", end="")
