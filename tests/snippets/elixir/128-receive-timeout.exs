IO.inspect(receive do _ -> :message after 10 -> :nothing end)
