const net = require("net");
const server = net.createServer((c) => c.end("hi")).listen(0, "127.0.0.1", () => {
  net.connect(server.address().port).on("data", (d) => console.log(d.toString())).on("close", () => server.close());
});
