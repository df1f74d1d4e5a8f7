date -d @0 +%H:%M:%S
