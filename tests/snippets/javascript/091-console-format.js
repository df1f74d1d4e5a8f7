console.log("%s is %d years and %i, %f, %j %o %O %%", "Bob", 42.5, 42.9, 1.5, { a: 1 }, [1], { b: 2 });
console.log(-0, 1n, Symbol("s"), null, undefined, NaN, [undefined, , 3], () => {}, class A {}, new Map([[1, { a: 2 }]]), new Set("ab"));
