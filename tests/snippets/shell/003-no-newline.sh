printf 'no newline at the end'
