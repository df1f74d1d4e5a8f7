const http = require("http");
const server = http.createServer((q, r) => r.end("served " + q.url)).listen(0, "127.0.0.1", async () => {
  console.log(await (await fetch(`http://127.0.0.1:${server.address().port}/x`)).text());
  server.close();
  server.closeAllConnections?.();
});
