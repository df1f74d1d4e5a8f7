{pid, ref} = spawn_monitor(fn -> exit(:done) end)
receive do
  {:DOWN, ^ref, :process, ^pid, reason} -> IO.inspect(reason)
end
