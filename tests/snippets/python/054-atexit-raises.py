import atexit
import sys
sys.unraisablehook = lambda info: print("unraisable", info.exc_type.__name__, info.exc_value, info.err_msg is not None)
atexit.register(lambda: 1 / 0)
atexit.register(print, "runs")
