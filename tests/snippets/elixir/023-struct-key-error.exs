defmodule S do
  defstruct [:a]
end
s = struct(S, a: 1)
IO.inspect(s.missing)
