defprotocol Area do
  def of(shape)
end
defmodule Square do
  defstruct side: 1
end
defimpl Area, for: Square do
  def of(s), do: s.side * s.side
end
IO.inspect(Area.of(struct(Square, side: 4)))
