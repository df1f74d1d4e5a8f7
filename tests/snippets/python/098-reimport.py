import sys, json
old = json
del sys.modules["json"]
import json
print(json is old, json.dumps([1]))
