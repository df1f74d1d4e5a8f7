sh -c 'exit 9' &
wait $!
echo $?
