const c = new AbortController();
c.signal.addEventListener("abort", () => console.log("aborted", c.signal.reason.name));
c.abort();
