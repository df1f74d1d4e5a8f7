import subprocess, sys
code = "import sys; print(sorted(sys.modules) == sorted(set(sys.modules)), sys.argv, 'sitecustomize' in sys.modules)"
print(subprocess.run([sys.executable, "-c", code, "a"], capture_output=True, text=True))
