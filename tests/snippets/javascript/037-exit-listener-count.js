console.log(process.listenerCount("exit"), process.listeners("exit"), process.eventNames());
process.on("exit", () => console.log(process.listenerCount("exit") > 0));
