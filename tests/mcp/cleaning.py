"""Removes every sandbox of a server before it is stopped: they would outlive it."""

import os
import subprocess
import time

from server import TARGET


def remove_all(server):
    folder = server.path / "data/sandboxes"
    environment = {**os.environ, "RINGFENCE_DATA": str(server.path / "data")}
    for sandbox in sorted(folder.glob("sb_*")):
        command = [TARGET / "debug/ringfence", "rm", "--url", server.url, sandbox.name]
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while any(folder.glob("sb_*")):
        assert time.monotonic() < until, "a sandbox is not gone"
        time.sleep(0.05)
