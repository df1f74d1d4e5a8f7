const { spawn } = require("child_process");
const cat = spawn("cat", { stdio: ["pipe", "inherit", "inherit"] });
cat.stdin.end("through cat\n");
cat.on("close", (code) => console.log("closed", code));
