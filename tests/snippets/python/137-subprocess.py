import subprocess
result = subprocess.run(["sh", "-c", "echo out; echo err >&2; exit 4"], capture_output=True, text=True)
print(result)
subprocess.run(["echo", "straight through"])
