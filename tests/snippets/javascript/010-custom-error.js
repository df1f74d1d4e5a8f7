class Failure extends Error {
  constructor(code) {
    super(`failed with ${code}`);
    this.name = "Failure";
    this.code = code;
  }
}
throw new Failure(7);
