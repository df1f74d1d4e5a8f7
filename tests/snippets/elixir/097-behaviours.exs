defmodule B do
  @callback run(integer) :: integer
end
defmodule Impl do
  @behaviour B
  @impl true
  def run(x), do: x + 1
end
IO.inspect(Impl.run(1))
