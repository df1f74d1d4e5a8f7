require("fs").writeFileSync("/workspace/broken.js", "function f() { throw new Error('inside'); }\nf();\n");
require("./broken");
