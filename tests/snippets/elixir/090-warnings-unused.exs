defmodule A do
  def f(x) do
    y = 1
    :ok
  end
end
IO.inspect(A.f(1))
