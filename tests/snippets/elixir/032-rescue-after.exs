try do
  raise ArgumentError, "x"
rescue
  e in ArgumentError -> IO.puts("rescued #{e.message}")
else
  _ -> IO.puts("else")
after
  IO.puts("after")
end
