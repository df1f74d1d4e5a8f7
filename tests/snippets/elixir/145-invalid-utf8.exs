IO.puts("ÿ")
