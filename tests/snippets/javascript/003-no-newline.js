process.stdout.write("no newline at the end");
