const { AsyncLocalStorage } = require("async_hooks");
const s = new AsyncLocalStorage();
s.run("ctx", () => setTimeout(() => console.log(s.getStore()), 1));
