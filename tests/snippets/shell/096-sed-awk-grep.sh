printf 'a 1\nb 2\nc 3\n' | sed 's/b/B/' | awk '{s += $2; print $1} END {print s}' | grep -v a
