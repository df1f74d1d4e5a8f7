defmodule A do
  @deprecated "use new/0"
  def old, do: :old
  def new, do: old()
end
IO.inspect(A.new())
