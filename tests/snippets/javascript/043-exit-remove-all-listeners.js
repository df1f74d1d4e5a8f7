process.on("exit", () => console.log("never"));
process.removeAllListeners();
process.exitCode = 4;
