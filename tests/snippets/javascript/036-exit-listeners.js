process.on("exit", (code) => console.log("one", code));
process.on("beforeExit", (code) => console.log("before", code));
process.prependListener("exit", () => console.log("zero"));
process.once("exit", () => console.log("two"));
console.log("body");
