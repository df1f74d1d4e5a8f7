IO.inspect(Stream.iterate(1, &(&1 * 2)) |> Stream.take_while(&(&1 < 100)) |> Enum.to_list())
IO.inspect(Stream.resource(fn -> 3 end, fn 0 -> {:halt, 0}; n -> {[n], n - 1} end, fn _ -> IO.puts("closed") end) |> Enum.to_list())
