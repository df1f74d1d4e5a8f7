outer() { inner() { echo in; }; inner; }
outer
inner
