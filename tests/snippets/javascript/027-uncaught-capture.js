process.setUncaughtExceptionCaptureCallback((error) => console.log("captured", error.message));
setTimeout(() => console.log("end"), 2);
throw new Error("x");
