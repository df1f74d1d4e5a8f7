import tempfile, os
with tempfile.NamedTemporaryFile("w+") as file:
    file.write("x")
    print(os.path.dirname(file.name))
with tempfile.TemporaryDirectory() as folder:
    print(os.path.isdir(folder))
