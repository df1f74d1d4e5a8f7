import atexit, os, sys
atexit.register(print, "called")
atexit._run_exitfuncs()
import os as again
print(os is again, "os" in sys.modules)
