const ref = new WeakRef({ a: 1 });
console.log(typeof ref.deref());
new FinalizationRegistry(() => console.log("never")).register({}, 1);
