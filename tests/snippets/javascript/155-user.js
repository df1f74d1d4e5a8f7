const os = require("os");
console.log(process.getuid(), process.getgid(), os.userInfo().username.length > 0, os.homedir(), os.tmpdir(), os.hostname());
