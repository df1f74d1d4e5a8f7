from decimal import Decimal, getcontext
from fractions import Fraction
getcontext().prec = 10
print(Decimal(1) / 3, Fraction(3, 6), Decimal("0.1") * 3)
