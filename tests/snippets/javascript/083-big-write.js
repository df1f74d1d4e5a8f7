process.stdout.write("y".repeat(3000000) + "\n");
