raise SystemExit(2.5)
