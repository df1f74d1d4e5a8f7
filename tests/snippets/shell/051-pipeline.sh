printf 'c\na\nb\n' | sort | head -n 2 | paste -sd,
