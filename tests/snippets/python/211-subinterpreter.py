try:
    import _xxsubinterpreters as interpreters
except ImportError:
    raise SystemExit(0)
number = interpreters.create()
interpreters.run_string(number, "print('inside', flush=True)")
interpreters.destroy(number)
kept = interpreters.create()
print("outside")
