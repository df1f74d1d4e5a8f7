f = fn -> Process.info(self(), :current_stacktrace) end
{:current_stacktrace, stack} = f.()
IO.inspect(Enum.map(stack, fn {m, f, a, _} -> {m, f, a} end))
