import { createRequire } from "node:module";
import { setTimeout } from "node:timers/promises";
const require = createRequire(import.meta.url);
console.log("before", typeof require("fs").readFileSync, typeof module, import.meta.url);
console.log(await setTimeout(1, "after"));
