System.get_env() |> Enum.sort() |> Enum.each(fn {k, v} -> IO.puts("#{k}=#{v}") end)
