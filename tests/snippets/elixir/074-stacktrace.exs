try do
  Enum.map([1], fn x -> hd(x) end)
rescue
  e -> IO.puts(Exception.format(:error, e, __STACKTRACE__))
end
