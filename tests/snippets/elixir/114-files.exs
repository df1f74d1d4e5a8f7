File.mkdir_p!("/workspace/data")
File.write!("/workspace/data/a.txt", "one\ntwo\n")
IO.inspect({File.ls!("/workspace") |> Enum.sort(), File.stream!("data/a.txt") |> Enum.map(&String.trim/1), File.read("/nothing")})
File.read!("/nothing")
