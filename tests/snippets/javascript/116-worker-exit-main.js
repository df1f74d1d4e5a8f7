const { Worker } = require("worker_threads");
new Worker("setInterval(() => {}, 1000)", { eval: true }).on("online", () => process.exit(4));
