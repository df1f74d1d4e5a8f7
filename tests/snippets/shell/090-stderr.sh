echo to stderr >&2
printf partial >&2
exit 1
