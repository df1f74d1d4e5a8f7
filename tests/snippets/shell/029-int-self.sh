kill -INT $$
echo never
