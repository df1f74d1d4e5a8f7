console.log(require("inspector").url(), process.debugPort, process.features.inspector);
