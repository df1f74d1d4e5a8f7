set -v
echo one
echo two
