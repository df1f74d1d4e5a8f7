const x = 1;
console.log('crlf', x);
