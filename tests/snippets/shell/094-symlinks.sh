ln -s main.sh /workspace/l
readlink /workspace/l
