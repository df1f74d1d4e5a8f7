IO.puts(String.duplicate("y", 2_000_000))
