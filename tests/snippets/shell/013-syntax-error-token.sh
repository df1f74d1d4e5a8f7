echo before
)
echo after
