printf '%5.2f|%-5s|%05d|%x|%q\n' 3.14159 ab 42 255 "a b"
