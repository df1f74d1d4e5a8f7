touch /workspace/file
/workspace/file
echo "status $?"
