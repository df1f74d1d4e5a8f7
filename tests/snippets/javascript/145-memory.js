const u = process.memoryUsage();
console.log(Object.keys(u), process.resourceUsage().maxRSS > 0, require("v8").getHeapStatistics().heap_size_limit > 1e8);
