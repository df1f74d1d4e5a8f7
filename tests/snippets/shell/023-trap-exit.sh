trap 'echo bye $?' EXIT
echo body
exit 5
