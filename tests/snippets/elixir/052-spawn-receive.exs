parent = self()
spawn(fn -> send(parent, {:result, 6 * 7}) end)
receive do
  {:result, n} -> IO.puts(n)
after
  1000 -> IO.puts("timeout")
end
