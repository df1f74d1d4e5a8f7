defmodule A do
  def f( do
end
