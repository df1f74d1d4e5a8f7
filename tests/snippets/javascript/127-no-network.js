require("net").connect(80, "192.0.2.1").on("error", (e) => console.log(e.code));
