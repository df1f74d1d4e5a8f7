IO.inspect({Regex.run(~r/(\w+)@(\w+)/, "me@home"), Regex.scan(~r/\d/, "a1b2"), Regex.named_captures(~r/(?<k>\w)=(?<v>\d)/, "x=1")})
Regex.compile!("(")
