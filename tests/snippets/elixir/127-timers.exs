:timer.send_after(10, :ping)
Process.send_after(self(), :pong, 30)
for _ <- 1..2, do: (receive do m -> IO.inspect(m) end)
