import { readFile, writeFile } from "node:fs/promises";
await writeFile("/tmp/x", "content");
console.log(await readFile("/tmp/x", "utf8"));
await readFile("/tmp/none");
