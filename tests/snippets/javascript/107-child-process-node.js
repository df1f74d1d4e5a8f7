const { spawnSync } = require("child_process");
console.log(spawnSync(process.execPath, ["-e", "console.log(process.execArgv.length, process.argv.length, process.env.NODE_OPTIONS)"]).stdout.toString());
