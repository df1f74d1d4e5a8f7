const log = [];
const p = new Proxy({}, { get: (t, k) => (log.push(String(k)), 1) });
p.a + p.b;
console.log(log, Symbol.for("x").description, Reflect.ownKeys({ b: 1, a: 2, 1: 3 }));
