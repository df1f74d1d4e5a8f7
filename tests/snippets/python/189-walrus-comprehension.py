print([y for x in range(5) if (y := x * x) % 2 == 0], {k: v for k, v in zip("ab", (1, 2))}, y)
