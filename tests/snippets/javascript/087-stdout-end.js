process.stdout.write("data\n", () => console.error("written"));
