function inner() { console.trace("here"); }
inner();
