class Loud:
    def __init__(self, name): self.name = name
    def __del__(self): print("gone", self.name)

one = Loud("module")
cycle = [Loud("cycle")]
cycle.append(cycle)
raise SystemExit(4)
