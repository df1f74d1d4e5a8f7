defmodule A do
  def f, do: missing(1)
end
