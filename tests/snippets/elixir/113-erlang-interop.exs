IO.inspect({:lists.reverse([1, 2]), :erlang.phash2(:a), :math.pow(2, 3), :string.uppercase("x"), :crypto.hash(:md5, "a") |> Base.encode16()})
