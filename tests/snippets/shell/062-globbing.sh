cd /workspace
touch b.txt a.txt
echo *.txt *.none
