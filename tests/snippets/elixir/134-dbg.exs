x = 2
IO.inspect(x + 1)
