for i <- 1..3, do: send(self(), i)
IO.inspect(Process.info(self(), :messages))
