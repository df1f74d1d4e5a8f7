export MINE=1
other=2
sh -c 'echo "$MINE $other"'
