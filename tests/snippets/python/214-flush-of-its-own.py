import sys

class Counting:
    def __init__(self, stream): self.stream, self.flushed = stream, 0
    def write(self, text): return self.stream.write(text)
    def flush(self):
        self.flushed += 1
        self.stream.write(f"flushed {self.flushed}\n")
        self.stream.flush()

sys.stdout = Counting(sys.stdout)
print("text")
