echo -e 'a\tb'
echo -n no newline
echo
