defmodule A do
  @moduledoc "Docs"
  @values [1, 2, 3]
  Module.register_attribute(__MODULE__, :acc, accumulate: true)
  @acc 1
  @acc 2
  def values, do: {@values, @acc}
end
IO.inspect(A.values())
