x = 1
print(x is 1)
