IO.inspect(Process.get() |> Keyword.keys() |> Enum.sort())
Process.put(:mine, 1)
IO.inspect(Process.get(:mine))
