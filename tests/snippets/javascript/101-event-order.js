// Only in a callback of the loop is it certain which comes first, a timer of 0 ms or an immediate.
require("node:fs").stat(".", () => {
  setTimeout(() => console.log("timeout"), 0);
  setImmediate(() => console.log("immediate"));
});
Promise.resolve().then(() => console.log("microtask"));
process.nextTick(() => console.log("tick"));
queueMicrotask(() => console.log("queued"));
console.log("sync");
