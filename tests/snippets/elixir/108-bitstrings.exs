<<a::4, b::12, rest::binary>> = <<0x12, 0x34, "tail">>
IO.inspect({a, b, rest, Bitwise.band(12, 10)})
