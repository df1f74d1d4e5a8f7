Process.flag(:trap_exit, true)
pid = spawn_link(fn -> exit(:crashed) end)
receive do
  {:EXIT, ^pid, reason} -> IO.inspect(reason)
end
