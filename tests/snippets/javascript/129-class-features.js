class A { #secret = 1; static count = 0; get secret() { return this.#secret; } static { A.count = 5; } }
class B extends A { constructor() { super(); this.own = super.secret; } }
console.log(new B(), A.count, new B() instanceof A);
