System.at_exit(fn status -> IO.puts("first registered #{status}") end)
System.at_exit(fn status -> IO.puts("last registered #{status}") end)
IO.puts("body")
