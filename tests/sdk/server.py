"""A real server for tests of clients: started over a data directory of its own, killed, started again."""

import os
import pathlib
import signal
import subprocess
import tempfile

TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", "target")).resolve()


class Server:
    """Sandboxes outlive it: `remove` deletes them."""

    def __init__(self, settings=""):
        self.folder = tempfile.TemporaryDirectory(prefix="ringfence-sdk-")
        self.path = pathlib.Path(self.folder.name)
        # The daemon has another user than whoever starts the server.
        self.path.chmod(0o755)
        self.runtime = self.path / "run"
        self.runtime.mkdir(mode=0o700)
        self.log = open(self.path / "log", "w")
        self.config = self.path / "config.toml"
        self.config.write_text(settings)
        self.process = None
        # Where it was, it is again: clients come back to it.
        self.listen = "127.0.0.1:0"

    def start(self):
        environment = {**os.environ, "XDG_RUNTIME_DIR": str(self.runtime)}
        command = [TARGET / "debug/ringfence", "serve", "--config", self.config, "--listen", self.listen,
                   "--data", self.path / "data"]
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=self.log, text=True)
        for line in self.process.stdout:
            if line.startswith("Ringfence serves on"):
                os.environ["XDG_RUNTIME_DIR"] = str(self.runtime)
                self.url = line.split()[-1]
                self.listen = self.url.removeprefix("http://")
                return self
        raise RuntimeError("the server did not start: " + (self.path / "log").read_text())

    def kill(self):
        """Ends it as a crash does; its daemon ends with it."""
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()
        # It is not our child; as soon as it is gone its locks are free.
        for lock in (self.runtime / "agbox/agboxd.lock", self.path / "data/lock"):
            subprocess.run(["flock", "--exclusive", "--timeout", "60", lock, "true"], check=True)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        _, _ = self.process.communicate()
        if self.process.returncode != 0:
            raise RuntimeError(f"the server ended with {self.process.returncode}: " + (self.path / "log").read_text())
        self.log.close()
        self.folder.cleanup()
