shopt -s nullglob extglob
echo /workspace/none* end
