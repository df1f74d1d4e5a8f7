const value = undefined;
function read() {
  return value.name;
}
read();
