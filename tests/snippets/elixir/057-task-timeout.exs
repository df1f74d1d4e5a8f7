task = Task.async(fn -> Process.sleep(5000) end)
IO.inspect(Task.yield(task, 10) || Task.shutdown(task, :brutal_kill))
