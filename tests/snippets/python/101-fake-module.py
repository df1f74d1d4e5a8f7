import sys, types
sys.modules["random"] = fake = types.ModuleType("random")
fake.Random = object
try:
    import tempfile
    print("imported")
except ImportError as error:
    print(error)
