const { exec } = require("child_process");
exec("echo $0; exit 3", (error, stdout) => console.log(error.code, stdout));
