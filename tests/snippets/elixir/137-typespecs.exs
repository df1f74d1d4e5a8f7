defmodule A do
  @type t :: integer | nil
  @spec f(t) :: t
  def f(x), do: x
end
IO.inspect(A.f(nil))
