m = %{a: 1, b: 2}
IO.inspect({Map.merge(m, %{b: 3}), Map.new([c: 1]), put_in(%{u: %{n: 1}}[:u][:n], 2), Keyword.merge([a: 1], b: 2), Map.to_list(m), get_in(%{a: [%{b: 1}]}, [:a, Access.at(0), :b])})
