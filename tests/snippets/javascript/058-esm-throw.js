import "node:fs";
function fail() { throw new Error("in a module"); }
fail();
