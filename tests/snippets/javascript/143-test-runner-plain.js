const { strictEqual } = require("assert/strict");
try { strictEqual(1, 2); } catch (e) { console.log(e.code, e.actual, e.expected); }
