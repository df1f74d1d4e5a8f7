pwd
cd /tmp && pwd
cd - > /dev/null && pwd
