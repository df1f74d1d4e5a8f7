function* count() { const got = yield 1; console.log("got", got); try { yield 2; } finally { console.log("cleanup"); } }
const g = count();
console.log(g.next(), g.next("v"), g.return(9));
