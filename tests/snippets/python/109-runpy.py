import runpy
open("/workspace/other.py", "w").write("print(__name__, __file__)\nx = 3\n")
print(runpy.run_path("/workspace/other.py", run_name="__main__")["x"])
