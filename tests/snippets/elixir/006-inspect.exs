IO.inspect({:ok, [1, 2.5, "x", nil, true], %{a: 1, "b" => :c}, 'chars', <<1, 2, 255>>, 1..3})
