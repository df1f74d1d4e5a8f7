Map.fetch!(%{a: 1}, :b)
