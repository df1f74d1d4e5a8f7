handle = open("/workspace/out.txt", "w")
handle.write("kept in a buffer")
import atexit, os
class Look:
    def __del__(self):
        pass
print(os.path.getsize("/workspace/out.txt"))
