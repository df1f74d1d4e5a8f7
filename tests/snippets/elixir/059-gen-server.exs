defmodule Counter do
  use GenServer
  def init(n), do: {:ok, n}
  def handle_call(:next, _from, n), do: {:reply, n, n + 1}
  def handle_cast({:add, k}, n), do: {:noreply, n + k}
end
{:ok, pid} = GenServer.start_link(Counter, 10)
GenServer.cast(pid, {:add, 5})
IO.inspect({GenServer.call(pid, :next), GenServer.call(pid, :next)})
