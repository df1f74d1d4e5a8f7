map = %{a: 1}
%{map | b: 2}
