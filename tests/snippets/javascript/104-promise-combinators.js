Promise.allSettled([1, Promise.reject(new Error("x"))]).then((r) => console.log(r.map((x) => x.status)));
Promise.any([Promise.reject(1), 2]).then(console.log);
Promise.race([new Promise((r) => setTimeout(r, 50, "slow")), "fast"]).then(console.log);
