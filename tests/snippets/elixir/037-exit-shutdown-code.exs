exit({:shutdown, 3})
