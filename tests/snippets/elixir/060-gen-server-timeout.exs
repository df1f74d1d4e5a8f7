defmodule Slow do
  use GenServer
  def init(_), do: {:ok, nil}
  def handle_call(:slow, _from, s) do
    Process.sleep(500)
    {:reply, :ok, s}
  end
end
{:ok, pid} = GenServer.start(Slow, nil)
try do
  GenServer.call(pid, :slow, 10)
catch
  :exit, {:timeout, {GenServer, :call, [_, :slow, 10]}} -> IO.puts("timed out")
end
