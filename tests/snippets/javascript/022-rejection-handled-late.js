const p = Promise.reject(new Error("late"));
process.on("unhandledRejection", () => console.log("unhandled"));
process.on("rejectionHandled", () => console.log("handled after all"));
setTimeout(() => p.catch(() => {}), 5);
