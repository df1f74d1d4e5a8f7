import pickle
class Point:
    def __init__(self, x): self.x = x
copy = pickle.loads(pickle.dumps(Point(4)))
print(type(copy).__module__, copy.x, isinstance(copy, Point))
