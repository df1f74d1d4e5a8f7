name=x
cat <<END
hello $name $(echo inner)
END
cat <<'END'
raw $name
END
