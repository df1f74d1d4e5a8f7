defmodule B do
  @callback run(integer) :: integer
end
defmodule Impl do
  @behaviour B
end
IO.puts("compiled")
