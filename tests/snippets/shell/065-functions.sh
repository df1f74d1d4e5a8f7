add() { local sum=$(($1 + $2)); echo $sum; return 7; }
add 2 3
echo "status $? [$sum]"
