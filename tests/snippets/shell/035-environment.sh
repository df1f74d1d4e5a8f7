env | grep -v '^_=' | sort
