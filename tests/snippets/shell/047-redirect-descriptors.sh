exec 7> /workspace/seven
echo to seven >&7
exec 7>&-
cat /workspace/seven
