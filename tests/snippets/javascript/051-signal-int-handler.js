process.once("SIGINT", () => { console.log("interrupted"); process.exit(130); });
setTimeout(() => {}, 1000);
process.kill(process.pid, "SIGINT");
