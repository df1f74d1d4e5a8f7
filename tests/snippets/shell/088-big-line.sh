head -c 2000000 /dev/zero | tr '\0' y
echo
