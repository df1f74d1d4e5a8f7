read -r name
echo "hello $name"
