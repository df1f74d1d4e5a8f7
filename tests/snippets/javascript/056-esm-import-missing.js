import nothing from "no-such-package";
console.log(nothing);
