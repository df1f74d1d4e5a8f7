Enum.each([1, 2], fn x ->
  if x == 2, do: raise("in a fun")
  IO.puts(x)
end)
