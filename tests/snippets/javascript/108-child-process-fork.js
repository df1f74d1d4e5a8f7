if (process.argv[2] === "child") {
  process.send({ args: process.argv.slice(2), execArgv: process.execArgv });
} else {
  const child = require("child_process").fork(__filename, ["child"]);
  child.on("message", (m) => console.log("message", m));
  child.on("exit", (code) => console.log("exit", code));
}
