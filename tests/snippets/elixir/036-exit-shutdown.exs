exit(:shutdown)
