function a() { return new Error("made here").stack; }
const b = { c: () => a() };
console.log(b.c());
