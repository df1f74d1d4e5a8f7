async function* numbers() { yield 1; await null; yield 2; }
(async () => { for await (const n of numbers()) console.log(n); })();
