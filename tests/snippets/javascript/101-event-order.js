setTimeout(() => console.log("timeout"), 0);
setImmediate(() => console.log("immediate"));
Promise.resolve().then(() => console.log("microtask"));
process.nextTick(() => console.log("tick"));
queueMicrotask(() => console.log("queued"));
console.log("sync");
