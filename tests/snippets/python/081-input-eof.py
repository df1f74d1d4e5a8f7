print("before")
input()
