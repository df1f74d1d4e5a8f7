coproc cat
echo through >&"${COPROC[1]}"
read -r line <&"${COPROC[0]}"
echo $line
