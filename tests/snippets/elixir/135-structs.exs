defmodule P do
  @enforce_keys [:x]
  defstruct [:x, y: 0]
end
IO.inspect(struct!(P, x: 1))
struct!(P, y: 2)
