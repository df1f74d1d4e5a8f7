a=(one "two words" three)
echo "${#a[@]} ${a[1]} ${a[@]:1:2} ${!a[@]}"
declare -A m=([k]=v [x]=y)
echo "${m[k]} ${#m[@]}"
