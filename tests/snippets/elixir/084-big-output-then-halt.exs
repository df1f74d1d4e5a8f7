IO.puts(String.duplicate("z", 200_000))
System.halt(2)
