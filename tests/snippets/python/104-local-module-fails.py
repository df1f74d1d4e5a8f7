with open("broken.py", "w") as file:
    file.write("def f():\n    raise LookupError('inside')\nf()\n")
import broken
