Error.prepareStackTrace = (error, frames) => frames.map((f) => f.getFunctionName() + ":" + f.getLineNumber()).join("|");
function named() { return new Error("x").stack; }
console.log(named().split("|")[0]);
process.exitCode = 3;
