from math import *
from itertools import *
print(floor(pi), list(islice(count(3), 2)))
