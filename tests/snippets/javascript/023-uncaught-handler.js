process.on("uncaughtException", (error, origin) => console.log("caught", error.message, origin));
setTimeout(() => console.log("still alive"), 5);
throw new Error("x");
