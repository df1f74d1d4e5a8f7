defmodule A do
  def outer(x), do: inner(x) + 1
  defp inner(x), do: raise(ArgumentError, "bad #{x}")
end
A.outer(3)
