trap 'echo got TERM' TERM
kill -TERM $$
echo after
