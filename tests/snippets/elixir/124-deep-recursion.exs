defmodule R do
  def sum(0), do: 0
  def sum(n), do: n + sum(n - 1)
end
IO.puts(R.sum(1_000_000))
