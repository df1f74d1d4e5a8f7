const fs = require("fs");
fs.mkdirSync("/workspace/node_modules/pkg", { recursive: true });
fs.writeFileSync("/workspace/node_modules/pkg/package.json", '{"main": "lib.js"}');
fs.writeFileSync("/workspace/node_modules/pkg/lib.js", "module.exports = __filename;");
console.log(require("pkg"), require.resolve("pkg"));
