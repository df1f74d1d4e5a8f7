const m = require("module");
console.log(m.builtinModules.length > 30, m.isBuiltin?.("fs"), typeof m.createRequire("/workspace/x.js")("path").join);
