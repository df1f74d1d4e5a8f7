import sys
try:
    raise ValueError("kept")
except ValueError as error:
    sys.last_value, sys.last_type, sys.last_traceback = error, type(error), error.__traceback__
print("fine")
