IO.inspect({node(), Node.alive?(), Node.list()})
