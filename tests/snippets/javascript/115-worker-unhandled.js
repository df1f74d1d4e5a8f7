const { Worker } = require("worker_threads");
process.on("uncaughtException", (error, origin) => {
  console.log(origin, String(error));
  process.exitCode = 5;
});
new Worker("throw new TypeError('nobody listens')", { eval: true });
