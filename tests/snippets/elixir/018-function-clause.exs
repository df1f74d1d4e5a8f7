defmodule A do
  def f(x) when is_integer(x), do: x
end
A.f("text")
