{:ok, listen} = :gen_tcp.listen(0, [:binary, active: false, ip: {127, 0, 0, 1}])
{:ok, port} = :inet.port(listen)
spawn(fn ->
  {:ok, s} = :gen_tcp.accept(listen)
  :gen_tcp.send(s, "hi")
end)
{:ok, c} = :gen_tcp.connect({127, 0, 0, 1}, port, [:binary, active: false])
IO.inspect(:gen_tcp.recv(c, 0))
