import { writeFileSync } from "node:fs";
writeFileSync("/workspace/helper.mjs", "export const twice = (x) => 2 * x;");
const { twice } = await import("./helper.mjs");
console.log(twice(4));
