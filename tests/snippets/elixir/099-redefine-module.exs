defmodule A do
  def f, do: 1
end
defmodule A do
  def f, do: 2
end
IO.puts(A.f())
