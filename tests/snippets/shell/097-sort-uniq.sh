printf 'b\na\nb\n' | sort | uniq -c | sed 's/^ *//'
