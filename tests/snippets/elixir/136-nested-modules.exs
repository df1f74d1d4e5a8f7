defmodule A do
  defmodule B do
    def name, do: __MODULE__
  end
  alias __MODULE__.B
  def inner, do: B.name()
end
IO.inspect(A.inner())
