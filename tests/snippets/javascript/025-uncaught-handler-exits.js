process.on("uncaughtException", () => { console.log("leaving"); process.exit(9); });
throw new Error("first");
