process.kill(process.pid, "SIGKILL");
setTimeout(() => {}, 1000);
