process.stdin.on("data", (d) => console.log("data", d)).on("end", () => console.log("end"));
