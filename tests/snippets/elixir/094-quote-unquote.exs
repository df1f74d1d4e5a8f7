x = 3
IO.puts(Macro.to_string(quote do: 1 + unquote(x) * 2))
IO.inspect(Code.eval_string("a + 1", a: 41))
