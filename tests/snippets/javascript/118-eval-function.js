console.log(eval("1 + 2"), new Function("a", "return a * 2")(4));
try { eval("foo bar"); } catch (e) { console.log(e.name, e.message); }
eval("throw new Error('from eval')");
