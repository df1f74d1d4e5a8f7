const { setTimeout } = require("timers/promises");
await setTimeout(1);
console.log("not reached");
