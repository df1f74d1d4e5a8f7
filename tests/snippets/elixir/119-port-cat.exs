port = Port.open({:spawn, "cat"}, [:binary])
Port.command(port, "through cat")
receive do
  {^port, {:data, data}} -> IO.puts(data)
end
