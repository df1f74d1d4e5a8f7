process.on("SIGUSR2", (name, number) => { console.log(name, number); clearInterval(alive); });
const alive = setInterval(() => {}, 1000);
process.kill(process.pid, "SIGUSR2");
