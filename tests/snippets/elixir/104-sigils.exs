IO.inspect({~w(a b)a, ~s(q "x"), ~D[2024-02-29], ~T[10:00:00], ~c"abc", ~r/x+/i})
