for (const s of [process.stdin, process.stdout, process.stderr]) console.log(s.fd, s.isTTY, s.constructor.name, s.writable, s.readable);
console.log(process.stdout.columns, process.stdout._type, process.stdout.writableHighWaterMark);
