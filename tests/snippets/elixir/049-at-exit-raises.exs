System.at_exit(fn _ -> raise "in at_exit" end)
IO.puts("body")
