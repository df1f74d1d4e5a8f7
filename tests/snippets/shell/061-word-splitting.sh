x="a   b *"
set -f
echo $x
echo "$x"
