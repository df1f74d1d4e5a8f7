return 2
echo "goes on: $?"
