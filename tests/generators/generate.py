"""Generates clients from the OpenAPI document, compiles them, and counts their operations."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

METHODS = {"get", "put", "post", "delete", "options", "head", "patch", "trace"}


def run(*command):
    """Runs a program to its end, and fails with what it says."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(f"{done.stdout}\n{' '.join(map(str, command))} failed with {done.returncode}")
    return done.stdout


def expect_all(generator, found, operations):
    missing = sorted(operations - found)
    if missing:
        sys.exit(f"{generator} left out {len(missing)} of {len(operations)} operations: {', '.join(missing)}")
    print(f"{generator}: {len(operations)} operations, compiled")


def python_client(document, target, operations):
    client = target / "python_client"
    shutil.rmtree(client, ignore_errors=True)
    programs = Path(sys.executable).parent
    run(programs / "openapi-python-client", "generate", "--path", document, "--output-path", client, "--meta", "none")
    found = {file.stem for file in client.glob("api/*/*.py")} - {"__init__"}
    expect_all("openapi-python-client", found, operations)
    run(sys.executable, "-m", "compileall", "-q", client)
    run(sys.executable, "-m", "mypy", "--cache-dir", target / "mypy", client)


def typescript_client(document, target, operations):
    programs = target / "node/node_modules/.bin"
    client = target / "client.ts"
    run(programs / "openapi-typescript", document, "--output", client)
    run(programs / "tsc", "--noEmit", "--strict", client)
    found = set(re.findall(r"operations\[\"(\w+)\"\]", client.read_text()))
    expect_all("openapi-typescript", found, operations)
    run(programs / "redocly", "lint", "--format", "stylish", document)
    print("redocly: no errors")


def main():
    document, target = Path(sys.argv[1]), Path(sys.argv[2])
    paths = json.loads(document.read_text())["paths"]
    operations = {said["operationId"] for item in paths.values() for method, said in item.items() if method in METHODS}
    python_client(document, target, operations)
    typescript_client(document, target, operations)


if __name__ == "__main__":
    main()
