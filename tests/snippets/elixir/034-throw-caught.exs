IO.inspect(catch_value = try do throw({:ball, 1}) catch x -> x end)
IO.inspect(catch_value)
