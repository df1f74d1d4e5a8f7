f=$(mktemp)
echo x > "$f"
dirname "$f"
rm "$f"
