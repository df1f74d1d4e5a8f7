const fs = require("fs");
fs.writeSync(1, "one\n");
fs.writeSync(2, "two\n");
console.log("three");
