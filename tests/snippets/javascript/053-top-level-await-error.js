await Promise.reject(new Error("awaited"));
