System.at_exit(fn status -> IO.puts("status #{status}") end)
raise "x"
