require("fs").writeFileSync("/workspace/data.json", '{"a": [1]}');
console.log(require("./data.json").a);
