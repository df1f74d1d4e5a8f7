for i <- 1..20_000, do: IO.puts("#{i} #{String.duplicate("x", 20)}")
