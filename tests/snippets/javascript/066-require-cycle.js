const fs = require("fs");
fs.writeFileSync("/workspace/a.js", "exports.early = 1; const b = require('./b'); exports.late = b.seen;");
fs.writeFileSync("/workspace/b.js", "exports.seen = Object.keys(require('./a'));");
console.log(require("./a"));
