with open("/workspace/copyreg.py", "w") as file:
    file.write("print('mine')\nraise ImportError('mine is broken')\n")
try:
    import pickle
    print("imported")
except ImportError as error:
    print(error)
