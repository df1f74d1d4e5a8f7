{:ok, _} = Registry.start_link(keys: :unique, name: R)
Registry.register(R, :key, :value)
IO.inspect(Registry.lookup(R, :key) |> Enum.map(&elem(&1, 1)))
