const { a, b: { c = 3 } = {}, ...rest } = { a: 1, d: 4, e: 5 };
const [x, , y = 2, ...z] = [1, 2, undefined, 4, 5];
console.log(a, c, rest, x, y, z, null ?? "d", ({})?.p?.q);
