System.cmd("sh", ["-c", "echo streamed; echo err >&2"], into: IO.stream(:stdio, :line))
