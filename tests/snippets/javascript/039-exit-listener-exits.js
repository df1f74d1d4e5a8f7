process.on("exit", (code) => { console.log("got", code); process.exit(6); });
