no_such_command_here
echo "status $?"
