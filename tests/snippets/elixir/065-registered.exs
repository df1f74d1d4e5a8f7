IO.inspect(Process.registered() |> Enum.sort())
