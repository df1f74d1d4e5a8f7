echo 'ÿ'
