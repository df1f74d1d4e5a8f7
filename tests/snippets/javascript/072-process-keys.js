console.log(Object.keys(process).sort().join(" "));
console.log(process._preload_modules);
