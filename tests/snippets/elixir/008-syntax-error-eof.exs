if true do
  IO.puts("x")
