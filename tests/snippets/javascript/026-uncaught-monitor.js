process.on("uncaughtExceptionMonitor", (error) => console.log("monitor", error.message));
throw new Error("x");
