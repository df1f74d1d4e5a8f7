echo one
echo two
