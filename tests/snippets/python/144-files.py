import os, pathlib
path = pathlib.Path("/workspace/data")
path.mkdir()
(path / "a.txt").write_text("one\ntwo\n")
print(sorted(os.listdir("/workspace")), (path / "a.txt").read_text().splitlines(), oct((path / "a.txt").stat().st_mode))
print(os.getcwd(), os.path.exists("/workspace/main.py"))
