ulimit -c
