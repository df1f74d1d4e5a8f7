parent = self()
for i <- 1..5000, do: spawn(fn -> send(parent, i) end)
IO.puts(Enum.sum(for _ <- 1..5000, do: (receive do i -> i end)))
