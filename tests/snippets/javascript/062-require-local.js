require("fs").writeFileSync("/workspace/helper.js", "console.log(module.id, module.parent && module.parent.id, require.main === module); module.exports = (x) => 2 * x;");
console.log(require("./helper")(4), require.main === module, module.children.length);
