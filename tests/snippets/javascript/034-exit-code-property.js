process.exitCode = 5;
console.log("natural end");
