console.log(process.env.GREETING, JSON.stringify(process.env.EMPTY), process.env.UMLAUT);
console.log(require("child_process").execSync("echo $GREETING").toString());
