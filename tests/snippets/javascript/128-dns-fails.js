require("dns").lookup("no-such-host.invalid", (e) => console.log(e.code));
