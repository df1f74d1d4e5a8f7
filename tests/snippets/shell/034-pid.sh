test $$ -gt 1 && echo pid
test $PPID -ge 0 && echo ppid
