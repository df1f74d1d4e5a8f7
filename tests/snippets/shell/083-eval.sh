cmd='echo evaluated $((1 + 1))'
eval "$cmd"
