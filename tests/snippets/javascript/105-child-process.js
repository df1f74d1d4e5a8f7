const { spawnSync } = require("child_process");
const result = spawnSync("sh", ["-c", "echo out; echo err >&2; exit 4"]);
console.log(result.status, result.stdout.toString(), result.stderr.toString());
spawnSync("echo", ["straight through"], { stdio: "inherit" });
