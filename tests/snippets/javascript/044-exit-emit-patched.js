const emit = process.emit;
process.emit = function (name, ...rest) {
  if (name === "exit") console.log("patched", rest);
  return emit.call(this, name, ...rest);
};
process.exitCode = 2;
