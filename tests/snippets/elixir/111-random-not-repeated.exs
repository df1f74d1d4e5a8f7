IO.puts(length(Enum.uniq(for _ <- 1..100, do: :rand.uniform(1_000_000_000))) > 95)
IO.inspect(Process.get(:rand_seed) != nil)
:rand.seed(:exsss, {1, 2, 3})
IO.inspect(Enum.map(1..3, fn _ -> :rand.uniform(100) end))
