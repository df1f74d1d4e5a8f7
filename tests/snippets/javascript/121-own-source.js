console.log(require("fs").readFileSync(__filename, "utf8"));
