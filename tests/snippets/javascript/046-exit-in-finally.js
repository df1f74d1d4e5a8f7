try {
  console.log("body");
  process.exit(6);
} finally {
  console.log("never");
}
