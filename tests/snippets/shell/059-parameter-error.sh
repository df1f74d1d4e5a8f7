echo "${required:?must be set}"
echo never
