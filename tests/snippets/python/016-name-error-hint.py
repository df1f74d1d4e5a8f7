value = 1
print(valeu)
