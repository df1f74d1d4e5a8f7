console.log(new Set(Array.from({ length: 100 }, Math.random)).size);
