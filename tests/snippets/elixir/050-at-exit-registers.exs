System.at_exit(fn _ ->
  IO.puts("outer")
  System.at_exit(fn _ -> IO.puts("inner") end)
end)
