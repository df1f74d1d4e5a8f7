defmodule A do
  defguard is_small(x) when x < 10
  def f(x, y \\ 5)
  def f(x, y) when is_small(x), do: {:small, x + y}
  def f(x, _), do: {:big, x}
end
IO.inspect({A.f(1), A.f(1, 1), A.f(50)})
