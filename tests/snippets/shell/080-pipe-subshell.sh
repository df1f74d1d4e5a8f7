x=0
echo 5 | read x
echo $x
