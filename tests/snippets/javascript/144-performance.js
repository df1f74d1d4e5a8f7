const { performance } = require("perf_hooks");
console.log(performance.now() > 0, typeof performance.timeOrigin, process.hrtime.bigint() > 0n, process.uptime() > 0);
