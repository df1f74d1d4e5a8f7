const value = await Promise.resolve(3);
console.log(value);
