echo out > /workspace/o; echo err 2> /workspace/e >&2
cat /workspace/o /workspace/e
ls /nothing > /workspace/both 2>&1
wc -l < /workspace/both
