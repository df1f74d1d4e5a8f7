trap 'echo "failed: $BASH_COMMAND"' ERR
false
echo on
