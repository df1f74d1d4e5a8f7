Promise.reject(new Error("nobody cares"));
console.log("goes on");
