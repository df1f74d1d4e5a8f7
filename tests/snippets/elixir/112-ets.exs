t = :ets.new(:t, [:set, :public])
:ets.insert(t, [{:a, 1}, {:b, 2}])
IO.inspect(:ets.lookup(t, :a))
try do
  :ets.insert(t, :not_a_tuple)
rescue
  e -> IO.inspect(e.__struct__)
end
