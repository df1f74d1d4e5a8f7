const { Worker, isMainThread, parentPort, workerData } = require("worker_threads");
if (isMainThread) {
  const worker = new Worker(__filename, { workerData: 20 });
  worker.on("message", (m) => console.log("from worker", m));
  worker.on("exit", (code) => console.log("worker ended", code));
} else {
  parentPort.postMessage([workerData * 2, process.execArgv.length, Object.keys(require.cache).length]);
}
