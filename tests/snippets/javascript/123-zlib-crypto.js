const zlib = require("zlib"), crypto = require("crypto");
console.log(zlib.gunzipSync(zlib.gzipSync("abc")).toString(), crypto.createHash("sha256").update("a").digest("hex").slice(0, 16), crypto.randomUUID().length);
