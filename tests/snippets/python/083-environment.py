import os
for key in sorted(os.environ):
    print(key, "=", os.environ[key])
