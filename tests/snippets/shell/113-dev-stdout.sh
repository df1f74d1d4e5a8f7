echo through > /dev/stdout
echo errors > /dev/stderr
