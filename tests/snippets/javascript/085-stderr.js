console.error("to stderr");
process.stderr.write("partial");
process.exitCode = 1;
