{:ok, agent} = Agent.start_link(fn -> 0 end)
Agent.update(agent, &(&1 + 5))
IO.puts(Agent.get(agent, & &1))
