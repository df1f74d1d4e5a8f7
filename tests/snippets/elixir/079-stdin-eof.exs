IO.inspect(IO.gets(""))
