process.stdout.write("about to\n");
process.kill(process.pid, "SIGABRT");
setTimeout(() => {}, 1000);
