import os, sys
sys.stdout.write("never seen")
os.close(1)
