async function fail() {
  await null;
  throw new Error("async");
}
fail();
