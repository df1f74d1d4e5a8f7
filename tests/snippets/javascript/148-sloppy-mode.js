sloppy = 1;
console.log(globalThis.sloppy, delete globalThis.sloppy);
