echo 'a:b:c' | cut -d: -f2 | tr b x
printf 'one two\nthree\n' | wc -w
