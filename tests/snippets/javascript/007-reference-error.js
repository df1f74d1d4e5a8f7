console.log("before");
missing();
