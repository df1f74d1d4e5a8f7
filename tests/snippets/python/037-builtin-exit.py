print("x")
exit(2)
