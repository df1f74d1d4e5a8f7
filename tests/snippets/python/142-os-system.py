import os
print(os.system("exit 3") >> 8, os.popen("echo popen").read())
