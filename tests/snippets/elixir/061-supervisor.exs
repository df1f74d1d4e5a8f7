defmodule Worker do
  use Agent
  def start_link(n), do: Agent.start_link(fn -> n end, name: __MODULE__)
end
{:ok, sup} = Supervisor.start_link([{Worker, 3}], strategy: :one_for_one)
IO.inspect({Agent.get(Worker, & &1), Supervisor.count_children(sup)})
