import os, subprocess
print(os.environ["GREETING"], os.getenv("EMPTY"), os.environb[b"UMLAUT"])
print(subprocess.run("echo $GREETING", shell=True, capture_output=True, text=True).stdout)
