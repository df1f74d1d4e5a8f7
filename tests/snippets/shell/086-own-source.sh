cat "$0"
