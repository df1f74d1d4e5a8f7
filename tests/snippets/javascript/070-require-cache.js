console.log(Object.keys(require.cache));
console.log(Object.keys(require("module")._pathCache).length);
