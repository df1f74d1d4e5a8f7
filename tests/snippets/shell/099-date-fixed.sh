date -u -d @86400 +%Y-%m-%dT%H:%M:%S
