import json
print(json.dumps({"b": [1, None, True], "ä": "ü"}, sort_keys=True, ensure_ascii=False, indent=1))
json.loads("{bad")
