IO.inspect(:code.get_mode())
IO.inspect(Code.ensure_loaded?(Enum))
IO.inspect(Code.ensure_loaded(Nothing.Like.It))
