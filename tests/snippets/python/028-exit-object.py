raise SystemExit({"a": 1})
