import gc
print(gc.isenabled(), gc.get_threshold(), gc.garbage)
class Cycle: pass
for _ in range(3):
    c = Cycle()
    c.me = c
del c
gc.collect()
print(sum(isinstance(o, Cycle) for o in gc.get_objects()))
