defmodule R do
  def loop(0, acc), do: acc
  def loop(n, acc), do: loop(n - 1, acc + n)
end
IO.puts(R.loop(5_000_000, 0))
