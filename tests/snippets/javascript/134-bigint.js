console.log(2n ** 100n, BigInt(Number.MAX_SAFE_INTEGER) + 2n, typeof 1n);
1n + 1;
