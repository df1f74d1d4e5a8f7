f = fn a, b -> a + b end
f.(1)
