const { Readable, Transform, pipeline } = require("stream");
pipeline(Readable.from(["a", "b"]), new Transform({ transform(c, e, cb) { cb(null, c.toString().toUpperCase()); } }), process.stdout, (e) => { console.error("done", e); });
