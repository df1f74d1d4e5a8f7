class Thing:
    def __init__(self, name):
        self.name = name
    def __del__(self):
        print("gone:", self.name)
a = Thing("a")
b = Thing("b")
del a
print("end")
