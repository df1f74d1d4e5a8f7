echo "$GREETING [$EMPTY] $UMLAUT"
sh -c 'echo "$GREETING"'
