{:ok, value} = {:error, :nope}
IO.inspect(value)
