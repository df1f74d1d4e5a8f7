import fs, { readFileSync } from "node:fs";
import path from "path";
console.log(typeof fs.readFileSync, readFileSync === fs.readFileSync, path.join("a", "b"));
console.log(typeof require, typeof module, import.meta.url);
