task = Task.async(fn -> Enum.sum(1..100) end)
IO.puts(Task.await(task))
IO.inspect(Task.async_stream(1..4, &(&1 * &1)) |> Enum.to_list())
