IO.binwrite(<<0, 1, 2, 254, 255>>)
