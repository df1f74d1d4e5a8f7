pid = spawn(fn -> :ok end)
Process.sleep(20)
IO.inspect({Process.alive?(self()), Process.alive?(pid)})
