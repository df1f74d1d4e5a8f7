namespace = {}
exec("def f():\n    raise KeyError('from exec')", namespace)
print(eval("1 + 2"))
namespace["f"]()
