IO.inspect(for x <- 1..3, y <- [:a, :b], rem(x, 2) == 1, into: %{}, do: {{x, y}, x})
IO.inspect(for <<c <- "abc">>, do: c)
IO.inspect(for x <- [1, 1, 2], uniq: true, reduce: 0 do acc -> acc + x end)
