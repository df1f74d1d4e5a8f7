let times = 0;
process.on("beforeExit", () => {
  if (times++ < 2) setTimeout(() => console.log("again", times), 1);
});
