const lines = [];
require("readline").createInterface({ input: process.stdin }).on("line", (l) => lines.push(l)).on("close", () => console.log(lines));
