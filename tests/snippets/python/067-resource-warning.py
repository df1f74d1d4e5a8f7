import warnings
warnings.simplefilter("always")
def leak():
    open("/workspace/main.py")
leak()
print("done")
