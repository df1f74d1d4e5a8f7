import traceback
def fail():
    raise OSError(2, "nothing there", "/x")
try:
    fail()
except OSError:
    print(traceback.format_exc())
