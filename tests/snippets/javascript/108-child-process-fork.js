if (process.argv[2] === "child") {
  process.send({ args: process.argv.slice(2), execArgv: process.execArgv });
} else {
  // Which of the two events comes first is not certain.
  const { once } = require("node:events");
  const child = require("child_process").fork(__filename, ["child"]);
  Promise.all([once(child, "message"), once(child, "exit")]).then(([[message], [code]]) => {
    console.log("message", message);
    console.log("exit", code);
  });
}
