console.log(process.argv, process.execArgv, process.argv0, process.execPath, process.cwd(), process.exitCode);
console.log(process.title.length > 0, process.release.name, process.platform, process._exiting);
