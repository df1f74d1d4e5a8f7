const { Worker } = require("worker_threads");
new Worker("console.log('in worker', process.argv.length); process.exit(3)", { eval: true }).on("exit", (c) => { console.log("code", c); });
