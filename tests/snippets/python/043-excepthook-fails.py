import sys
def hook(kind, value, trace):
    raise RuntimeError("hook is broken")
sys.excepthook = hook
raise ValueError("seen")
