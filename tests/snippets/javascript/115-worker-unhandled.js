const { Worker } = require("worker_threads");
new Worker("throw new TypeError('nobody listens')", { eval: true });
