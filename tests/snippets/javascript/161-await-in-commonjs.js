const path = require("path");
async function main() {
  await null;
  console.log(path.basename(__filename), typeof module.exports);
  return "done";
}
main().then(console.log);
