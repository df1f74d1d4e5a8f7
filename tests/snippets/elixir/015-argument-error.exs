String.to_integer("abc")
