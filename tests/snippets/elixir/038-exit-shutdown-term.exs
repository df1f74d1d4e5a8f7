exit({:shutdown, :reason})
