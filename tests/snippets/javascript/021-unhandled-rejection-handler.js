process.on("unhandledRejection", (reason) => console.log("seen:", reason.message));
Promise.reject(new Error("handled"));
