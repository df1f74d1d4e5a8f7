x = 1
IO.inspect(x)
