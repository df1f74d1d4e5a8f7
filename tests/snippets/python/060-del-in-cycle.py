class Node:
    def __init__(self, name):
        self.name, self.me = name, self
    def __del__(self):
        print("collected", self.name)
node = Node("x")
del node
print("end")
