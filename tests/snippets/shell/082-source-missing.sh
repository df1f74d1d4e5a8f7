. /workspace/none.sh
echo "status $?"
