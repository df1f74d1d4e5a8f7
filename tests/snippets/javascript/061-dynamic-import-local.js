require("fs").writeFileSync("/workspace/helper.mjs", "export default 'helped'; console.log(import.meta.url);");
import("./helper.mjs").then((m) => console.log(m.default));
