with open("/workspace/random.py", "w") as file:
    file.write("answer = 42\n")
import random
print(random.answer, random.__file__)
