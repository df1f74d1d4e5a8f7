console.log(JSON.stringify({ b: [1, null, undefined], d: new Date(0), f() {} }, null, 1), JSON.parse('[1,{"a":2}]', (k, v) => v));
JSON.parse("{'a'}");
