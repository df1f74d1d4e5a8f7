const fs = require("fs");
fs.mkdirSync("/workspace/data");
fs.writeFileSync("/workspace/data/a.txt", "one\ntwo\n");
console.log(fs.readdirSync("/workspace").sort(), fs.readFileSync("data/a.txt", "utf8").split("\n"), (fs.statSync("data/a.txt").mode & 0o777).toString(8));
fs.readFileSync("/nothing");
