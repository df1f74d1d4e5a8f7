with open("helper.py", "w") as file:
    file.write("def twice(x):\n    return 2 * x\nprint('loaded', __name__, __file__)\n")
import helper
print(helper.twice(4))
