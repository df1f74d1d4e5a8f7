outer: for (const i of [1, 2]) for (const j of [1, 2]) { if (j === 2) continue outer; console.log(i, j); }
return;
console.log("never");
