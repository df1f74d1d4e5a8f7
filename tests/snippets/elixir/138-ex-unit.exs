ExUnit.start(autorun: false, colors: [enabled: false])
defmodule T do
  use ExUnit.Case
  test "good", do: assert 1 + 1 == 2
end
IO.inspect(is_integer(ExUnit.Server.modules_loaded()))
