import("node:os").then((os) => console.log(typeof os.cpus));
