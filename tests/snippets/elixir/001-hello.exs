IO.puts("hello")
