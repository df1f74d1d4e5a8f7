const util = require("util");
util.promisify(setTimeout)(1, "v").then(console.log);
console.log(util.format("%s", [1, [2, [3, [4]]]]), util.isDeepStrictEqual({ a: [1] }, { a: [1] }), util.types.isPromise(Promise.resolve()));
