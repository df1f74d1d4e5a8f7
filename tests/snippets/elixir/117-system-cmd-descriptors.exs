{out, 0} = System.cmd("ls", ["/proc/self/fd"])
IO.inspect(String.split(out))
