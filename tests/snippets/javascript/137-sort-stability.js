console.log([3, 1, 2].sort(), [10, 9, 1].sort(), [{ k: 1, v: "a" }, { k: 0, v: "b" }, { k: 1, v: "c" }].sort((p, q) => p.k - q.k).map((e) => e.v));
