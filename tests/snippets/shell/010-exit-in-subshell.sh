(exit 4)
echo "subshell: $?"
