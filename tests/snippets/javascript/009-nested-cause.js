function load() {
  try {
    JSON.parse("{bad");
  } catch (error) {
    throw new Error("cannot load", { cause: error });
  }
}
load();
