process.exit("4");
