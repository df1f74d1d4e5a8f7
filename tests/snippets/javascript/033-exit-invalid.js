process.exit("abc");
