cat /nothing
echo "status $?"
