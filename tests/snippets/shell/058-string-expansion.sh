s=hello.tar.gz
echo "${s%.gz} ${s##*.} ${s/l/L} ${s^^} ${s:1:3} ${#s} ${none:-default}"
