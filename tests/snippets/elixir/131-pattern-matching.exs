[h | t] = [1, 2, 3]
%{k: {a, _}} = %{k: {1, 2}}
"pre" <> rest = "prefix"
x = 1
IO.inspect({h, t, a, rest, match?({^x, _}, {1, 2})})
