[1, 2, 3] |> Enum.map(&(&1 * 2)) |> then(&IO.inspect/1) |> tap(&IO.inspect(length(&1)))
add = &+/2
IO.puts(add.(1, 2))
