def f(x):
    return (x +
            None)
f(
  1
)
