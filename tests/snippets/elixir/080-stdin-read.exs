IO.inspect(IO.read(:stdio, :line))
IO.inspect(IO.read(:stdio, :line))
