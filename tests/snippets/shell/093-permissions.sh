touch /workspace/p
chmod 640 /workspace/p
stat -c '%a %U' /workspace/p | cut -d' ' -f1
umask
