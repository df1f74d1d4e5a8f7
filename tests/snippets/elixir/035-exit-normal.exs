IO.puts("before")
exit(:normal)
