IO.inspect({System.get_env("GREETING"), System.get_env("EMPTY"), System.get_env("UMLAUT")})
IO.puts(elem(System.cmd("sh", ["-c", "echo $GREETING"]), 0))
