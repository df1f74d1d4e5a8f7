import sys
def hook(kind, value, trace):
    print("hook:", kind.__name__, value)
sys.excepthook = hook
raise ValueError("seen")
