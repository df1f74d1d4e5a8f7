with open("broken.py", "w") as file:
    file.write("def f(:\n")
import broken
