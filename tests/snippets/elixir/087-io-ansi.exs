IO.puts(IO.ANSI.format([:red, "not red"]))
IO.inspect(IO.ANSI.enabled?())
