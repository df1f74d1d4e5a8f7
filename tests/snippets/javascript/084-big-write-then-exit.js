process.stdout.write("z".repeat(60000) + "\n");
process.exit(1);
