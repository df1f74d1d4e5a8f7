[ -f /workspace/main.sh ] && echo file
[[ abc == a* && 5 -gt 3 ]] && echo yes
[ -z "" -a -n x ] && echo both
test -d /nothing || echo none
