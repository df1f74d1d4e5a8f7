const util = require("util");
util.deprecate(() => {}, "old thing", "DEP_X")();
