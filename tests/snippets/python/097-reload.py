import importlib, json
first = json.loads
importlib.reload(json)
print(json.loads is first, json.__name__)
