sh -c 'kill -SEGV $$'
echo "status $?"
