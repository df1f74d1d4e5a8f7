tty
test -t 0 || echo no terminal
