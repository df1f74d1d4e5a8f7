echo 'sourced() { echo "from $1"; }' > /workspace/lib.sh
. /workspace/lib.sh
sourced here
