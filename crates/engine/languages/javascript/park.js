// Parks a Node.js that was started with its real command line, until its one request arrives.
//
// Loaded by `--require`, before the script is looked at. It blocks, applies the request, and returns: Node.js then
// resolves and runs the script as it would have done anyway, as CommonJS or as a module.
//
// Descriptor 3 carries the request up to end of file: `KEY=VALUE\0` for each variable, one lone `\0`, the code.
// Descriptor 4 takes the line `ready`. Both are closed before the code runs. The exit status is the kernel's: see
// `exitAtOnce` for how the end of the event loop becomes an exit without taking the heap apart first.
'use strict';

const fs = require('fs');
const Module = require('module');
const { isMainThread } = require('worker_threads');

const REQUEST = 3;
const REPORT = 4;

leaveNoTrace();
// Workers load this file again, since they have the options of the process.
if (isMainThread) {
  warmUp();
  exitAtOnce();
  fs.writeSync(REPORT, 'ready\n');
  fs.closeSync(REPORT);
  start(readToEnd(REQUEST));
}

// Takes back what made Node.js load this file. Children get `process.execArgv`, so it matters there too.
function leaveNoTrace() {
  const at = process.execArgv.findIndex((argument, i, all) => /^(-r|--require)$/.test(argument) && all[i + 1] === __filename);
  if (at >= 0) process.execArgv.splice(at, 2);
  const mine = process._preload_modules?.indexOf(__filename) ?? -1;
  if (mine >= 0) process._preload_modules.splice(mine, 1);
  forget(__filename);
}

function forget(file) {
  delete require.cache[file];
  for (const key of Object.keys(Module._pathCache)) {
    if (Module._pathCache[key] === file) delete Module._pathCache[key];
  }
}

// Goes the whole way once with a program of the usual kind, because functions are compiled when first called.
function warmUp() {
  const code = `
    class Point { constructor(x) { this.x = x; } get double() { return this.x * 2; } }
    const format = (a, ...rest) => \`\${a}: \${rest.map((r) => r ** 2).join(', ')}\`;
    const seen = new Map([['a', 1]]);
    async function wait() { await null; return [...seen]; }
    wait().then(() => {});
    clearTimeout(setTimeout(() => {}, 1));
    try { null.x; } catch (error) { console.log(error, error.stack); }
    console.log('%s %d', 'x', 1, new Point(2), [1, 'b', { c: null }], seen, JSON.stringify({ a: [1] }), format('t', 1, 2));
    console.error(require('path').join('a', 'b'), require('fs').existsSync('/'), require('util').inspect({ a: 1 }));`;
  const nowhere = { write() { return true; }, on() {}, once() {}, removeListener() {}, listenerCount() { return 0; } };
  const { Console } = require('console');
  const real = Object.getOwnPropertyDescriptor(globalThis, 'console');
  Object.defineProperty(globalThis, 'console', { configurable: true, value: new Console({ stdout: nowhere, stderr: nowhere }) });
  try {
    readToEnd(fs.openSync('/dev/null'));
    start(Buffer.from(`\0${code}`));
    require(process.argv[1]);
    import('node:path').catch(() => {});
    process.stdout.write('');
    process._tickCallback(); // Leaves nothing to be done before the program's own.
  } finally {
    Object.defineProperty(globalThis, 'console', real);
    fs.unlinkSync(process.argv[1]);
    forget(process.argv[1]);
  }
}

function readToEnd(fd) {
  const parts = [];
  for (;;) {
    const part = Buffer.allocUnsafe(1 << 16);
    const length = fs.readSync(fd, part, 0, part.length, null);
    if (length === 0) break;
    parts.push(part.subarray(0, length));
  }
  fs.closeSync(fd);
  return Buffer.concat(parts);
}

// Exits in the very last exit listener, as `process.exit` does after it, when the event loop has ended by itself.
// Node.js would first free the whole heap, which no program can see and which takes milliseconds.
//
// Node.js reads `process.emit` just before the event and has set `process._exiting` by then. So the listener is added
// at that moment: after all others, unseen until then, and without a frame of its own in anybody's stack trace.
function exitAtOnce() {
  const { on, emit } = require('events').prototype;
  const { reallyExit } = process;

  function last(code) {
    const caller = framesAbove(last)[1];
    const final = Number(process.exitCode ?? code);
    // Without a caller it is the end of the event loop. Any other caller still has something to do; so has 13, a
    // top-level await that never settled.
    if (caller || final === 13 || !Number.isInteger(final)) return;
    reallyExit.call(process, final);
  }

  last(13); // Warms up, and does nothing.
  Object.defineProperty(Object.getPrototypeOf(process), 'emit', {
    configurable: true,
    get() {
      if (process._exiting && this === process) {
        Object.defineProperty(Object.getPrototypeOf(process), 'emit', { value: emit, writable: true });
        on.call(process, 'exit', last);
      }
      return emit;
    },
    set(value) {
      Object.defineProperty(this, 'emit', { value, configurable: true, enumerable: true, writable: true });
    },
  });
}

function framesAbove(callee) {
  const { prepareStackTrace, stackTraceLimit } = Error;
  Error.prepareStackTrace = (_, frames) => frames;
  Error.stackTraceLimit = 5;
  const target = {};
  Error.captureStackTrace(target, callee);
  const frames = target.stack;
  Error.prepareStackTrace = prepareStackTrace;
  Error.stackTraceLimit = stackTraceLimit;
  return Array.isArray(frames) ? frames : [];
}

// Applies the request and leaves the rest to Node.js.
function start(request) {
  let at = 0;
  for (;;) {
    const end = request.indexOf(0, at);
    if (end === at) break;
    if (end < 0) process.reallyExit(1); // The slot was given up.
    const variable = request.toString('utf8', at, end);
    const equals = variable.indexOf('=');
    process.env[variable.slice(0, equals)] = variable.slice(equals + 1);
    at = end + 1;
  }
  try {
    fs.writeFileSync(process.argv[1], request.subarray(at + 1));
  } catch (error) {
    fs.writeSync(2, `cannot write ${process.argv[1]}: ${error.code}\n`);
    process.reallyExit(1);
  }
}
