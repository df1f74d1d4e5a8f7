python3 -c 'import sys; print(sys.argv, "sitecustomize" in sys.modules)' a
