set -u
echo "$missing"
echo never
