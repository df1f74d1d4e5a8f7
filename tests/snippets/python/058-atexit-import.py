import atexit
@atexit.register
def late():
    import json, decimal
    print(json.dumps({"a": 1}), decimal.Decimal("1.10"))
