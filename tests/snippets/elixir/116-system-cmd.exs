IO.inspect(System.cmd("sh", ["-c", "echo out; exit 4"]))
IO.inspect(System.shell("echo $((1 + 2))"))
System.cmd("no-such-program", [])
