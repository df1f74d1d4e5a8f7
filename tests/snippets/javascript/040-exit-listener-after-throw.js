process.on("exit", (code) => { console.log("got", code, process.exitCode); });
throw new Error("x");
