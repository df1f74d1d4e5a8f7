console.log("a");
process.exit();
