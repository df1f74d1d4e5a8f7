const cyclic = { name: "x", list: Array.from({ length: 120 }, (_, i) => i) };
cyclic.self = cyclic;
console.log(cyclic, new Error("e").message, /re/g, new Date(0), Buffer.from("abc"), new Uint8Array(3), Promise.resolve(1), new Proxy({}, {}));
