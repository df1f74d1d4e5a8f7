console.log(this === module.exports, typeof globalThis, (function () { return this === globalThis; })());
