:erlang.halt(4)
