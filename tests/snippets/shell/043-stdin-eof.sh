read -r line
echo "status $? [$line]"
