const { Worker } = require("worker_threads");
const w = new Worker("throw new Error('in worker')", { eval: true });
w.on("error", (e) => console.log("error", e.message));
