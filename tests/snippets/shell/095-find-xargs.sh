mkdir -p /workspace/d/e
touch /workspace/d/a /workspace/d/e/b
find /workspace/d -type f | sort | xargs -n1 basename
