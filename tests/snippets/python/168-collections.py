from collections import Counter, defaultdict, deque, OrderedDict, namedtuple
P = namedtuple("P", "x y")
print(Counter("abca").most_common(1), deque([1, 2, 3], 2), P(1, y=2), OrderedDict(a=1), dict(defaultdict(int, a=1)))
