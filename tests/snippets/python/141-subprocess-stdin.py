import subprocess
print(subprocess.run(["cat"], input="through cat", capture_output=True, text=True).stdout)
subprocess.run(["cat"])
