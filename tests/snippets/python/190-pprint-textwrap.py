import pprint, textwrap
pprint.pprint({"key": list(range(30)), "other": {"nested": "x" * 60}}, width=60)
print(textwrap.fill("word " * 20, 30))
