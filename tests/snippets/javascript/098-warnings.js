process.emitWarning("careful");
process.on("warning", (w) => console.log("listener", w.name, w.message));
