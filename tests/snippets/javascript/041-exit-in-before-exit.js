process.on("beforeExit", () => process.exit(12));
