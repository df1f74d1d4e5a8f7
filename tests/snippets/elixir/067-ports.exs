IO.inspect(length(Port.list()))
