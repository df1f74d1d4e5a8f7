declare -i n=5
n+=3
declare -p n
