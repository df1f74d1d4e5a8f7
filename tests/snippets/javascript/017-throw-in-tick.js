process.nextTick(() => { throw new RangeError("tick"); });
console.log("first");
