diff <(printf '1\n2\n') <(printf '1\n3\n')
