set -C
echo 1 > /workspace/f
echo 2 > /workspace/f
cat /workspace/f
