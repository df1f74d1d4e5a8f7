let n = 0;
const t = setInterval(() => { console.log(++n); if (n === 3) clearInterval(t); }, 1);
setTimeout(() => console.log("unref"), 10000).unref();
