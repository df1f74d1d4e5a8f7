process.on("uncaughtException", () => { throw new Error("handler is broken"); });
throw new Error("first");
