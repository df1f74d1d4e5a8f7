import sys
def hook(kind, value, trace):
    print("leaving")
    sys.exit(12)
sys.excepthook = hook
raise ValueError("seen")
