import sys, code
interpreter = code.InteractiveInterpreter({})
interpreter.runsource("1/0")
print(hasattr(sys, "last_value"), sys.last_type.__name__)
