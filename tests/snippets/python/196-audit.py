import sys
seen = []
sys.addaudithook(lambda event, arguments: seen.append(event) if event.startswith("open") else None)
open("/dev/null").close()
print(seen)
