print(open(__file__).read())
