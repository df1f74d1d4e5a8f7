kill -TERM $$
echo never
