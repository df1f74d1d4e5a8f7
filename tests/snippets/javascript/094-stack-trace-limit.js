Error.stackTraceLimit = 2;
function f(n) { if (n) f(n - 1); else throw new Error("deep"); }
f(20);
