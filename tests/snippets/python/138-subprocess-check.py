import subprocess
subprocess.run(["sh", "-c", "exit 5"], check=True)
