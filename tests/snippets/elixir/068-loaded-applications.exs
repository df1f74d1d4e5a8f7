IO.inspect(Application.started_applications() |> Enum.map(&elem(&1, 0)) |> Enum.sort())
