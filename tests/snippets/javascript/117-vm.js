const vm = require("vm");
console.log(vm.runInNewContext("x * 2", { x: 21 }), vm.runInThisContext("typeof require"));
try { vm.runInThisContext("throw new Error('in vm')", "made-up.js"); } catch (e) { console.log(e.stack.split("\n").slice(0, 2).join("|")); }
