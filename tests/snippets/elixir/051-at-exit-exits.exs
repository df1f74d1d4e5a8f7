System.at_exit(fn _ -> exit({:shutdown, 9}) end)
