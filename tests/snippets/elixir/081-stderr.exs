IO.puts(:stderr, "to stderr")
IO.write(:stderr, "partial")
System.halt(1)
