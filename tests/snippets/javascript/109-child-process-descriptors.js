const { execSync } = require("child_process");
console.log(execSync("ls /proc/self/fd").toString().split("\n").length <= 5);
console.log(execSync("ls -l /proc/self/fd/4 2>/dev/null | wc -l").toString().trim());
