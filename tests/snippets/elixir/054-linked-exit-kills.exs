parent = self()
{_, ref} = spawn_monitor(fn ->
  spawn_link(fn -> exit(:boom) end)
  Process.sleep(1000)
  send(parent, :never)
end)
receive do
  {:DOWN, ^ref, _, _, reason} -> IO.inspect(reason)
  :never -> IO.puts("never")
end
