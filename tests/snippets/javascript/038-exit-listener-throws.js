process.on("exit", () => console.log("first"));
process.on("exit", () => { throw new Error("in exit"); });
console.log("body");
