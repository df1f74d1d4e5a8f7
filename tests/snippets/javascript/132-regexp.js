console.log("a1b22".replace(/\d+/g, (m) => m * 2), [..."x=1,y=2".matchAll(/(?<k>\w)=(?<v>\d)/g)].map((m) => ({ ...m.groups })));
new RegExp("(");
