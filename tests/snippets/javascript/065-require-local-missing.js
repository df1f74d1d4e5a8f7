require("./nothing.js");
