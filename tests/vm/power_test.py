"""A machine that loses power while its server is in use: every sandbox is stopped, says why, and has its files."""

import hashlib
import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest
import urllib.parse

from server import TARGET
from websocket import WebSocket

# Under software emulation, on a machine that does other work too.
BOOT_SECONDS = 120
ANSWER_SECONDS = 60
# Files that are only in the memory of the machine when it loses power.
UNSYNCED = "unsynced-"
SIZES = [0, 1, 4095, 4096, 4097, 65537, 1000003]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Machine:
    """A virtual machine with one disk and a server over it. The disk outlives the machine."""

    def __init__(self, folder):
        self.log = folder / "log"
        self.pid_file = folder / "pid"
        self.disk = folder / "disk.ext4"
        self.program = folder / "ringfence"
        self.process = None
        self.key = None
        with open(self.disk, "wb") as disk:
            disk.truncate(32 << 30)
        mkfs = shutil.which("mkfs.ext4", path=os.environ["PATH"] + ":/usr/sbin:/sbin")
        subprocess.run([mkfs, "-q", "-O", "quota", "-E", "quotatype=prjquota", self.disk], check=True)
        # A third of its size goes into the memory of the machine at every boot.
        subprocess.run(["strip", "-o", self.program, TARGET / "debug/ringfence"], check=True)

    def boot(self):
        """Returns once the server serves."""
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.address = ("127.0.0.1", port)
        begin = self.log.stat().st_size if self.log.exists() else 0
        command = ["tests/vm/run", "--memory", "2048", "--timeout", "600", "--disk", self.disk, "--forward", str(port),
                   "--pid-file", self.pid_file, "--env", "RINGFENCE_SANDBOXES__KEEP_FREE=64MiB",
                   "--file", f"{self.program}:/usr/local/bin/ringfence", "--", "tests/vm/server",
                   "--public-url", self.url]
        with open(self.log, "a") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + BOOT_SECONDS
        while True:
            told = self.log.read_text(errors="replace")[begin:]
            if "admin key " in told and "/readyz" in told:
                break
            if self.process.poll() is not None:
                raise AssertionError(f"the machine ended with {self.process.returncode} before its server served")
            if time.monotonic() > deadline:
                raise AssertionError(f"the server in the machine does not serve after {BOOT_SECONDS} s")
            time.sleep(0.1)
        self.key = told.split("admin key ")[1].split()[0]

    def cut(self):
        """Ends the machine between two instructions. What it had only in memory is gone."""
        os.kill(int(self.pid_file.read_text()), signal.SIGKILL)
        code = self.process.wait()
        self.process = None
        if code != 125:
            raise AssertionError(f"the machine was to be killed, and its program ended with {code}")

    def end(self):
        if self.process is not None:
            self.process.terminate()
            self.process.wait()

    def request(self, method, path, body=None, token=None, expect=(200, 201, 204)):
        """Sends a request and returns the body of the answer."""
        connection = http.client.HTTPConnection(*self.address, timeout=ANSWER_SECONDS)
        headers = {"Authorization": f"Bearer {token or self.key}"}
        if isinstance(body, dict):
            body, headers["Content-Type"] = json.dumps(body), "application/json"
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        if answer.status not in expect:
            raise AssertionError(f"{method} {path}: {answer.status} {data[:1000]}")
        return data

    def cli(self, *arguments):
        """Runs the command line client on this side; returns what it prints."""
        environment = {**os.environ, "RINGFENCE_URL": self.url, "RINGFENCE_API_KEY": self.key}
        ran = subprocess.run([TARGET / "debug/ringfence", *arguments], env=environment, stdin=subprocess.DEVNULL,
                             capture_output=True, text=True, timeout=ANSWER_SECONDS)
        if ran.returncode != 0:
            raise AssertionError(f"ringfence {' '.join(arguments)}: exit code {ran.returncode}: {ran.stderr}")
        return ran.stdout

    def events(self, sandbox):
        return [json.loads(line) for line in self.cli("events", sandbox, "--json").splitlines()]

    def events_until(self, sandbox, event_type):
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            events = self.events(sandbox)
            if events[-1]["event_type"] == event_type:
                return events
            if time.monotonic() > deadline:
                raise AssertionError(f"the last event of {sandbox} is not {event_type}: {events[-3:]}")


class Sandbox:
    """A sandbox, the files that it must have, and the commands that run in it."""

    def __init__(self, machine, name):
        self.machine, self.name = machine, name
        self.files, self.running, self.ended = {}, set(), {}
        self.random = random.Random(name)

    def open(self):
        """Gets a token, once after each boot."""
        minted = self.machine.cli("token", "mint", "--sandbox", self.name, "--scope", "fs:rw process shell", "--json")
        minted = json.loads(minted)
        self.token, self.path = minted["token"], urllib.parse.urlsplit(minted["dataplane_url"]).path

    def put(self, path, data):
        """Writes by the file API: it is on disk when the answer is there."""
        self.machine.request("PUT", f"{self.path}/files{path}?parents=true", data, self.token)
        self.files[path] = data

    def get(self, path):
        return self.machine.request("GET", f"{self.path}/files{path}", token=self.token)

    def run(self, script):
        return self.machine.cli("exec", self.name, "--", "sh", "-c", script)

    def use(self, round):
        """Writes files by every way, and leaves a command and a shell running."""
        folder = f"/workspace/round-{round}"
        for size in SIZES:
            self.put(f"{folder}/api/{size}", self.random.randbytes(size))
        # One file whose place is taken by another one, of another size.
        self.put("/workspace/replaced", self.random.randbytes(70000 - 20000 * round))
        # One that a program syncs, and some that are synced all together.
        self.run(f"mkdir -p {folder} && dd if=/dev/urandom of={folder}/fsync bs=1000 count=300 conv=fsync 2>/dev/null")
        self.run(f"cd {folder} && cp api/65537 copied && head -c 2000000 /dev/urandom >large && mkdir -p deep/er &&"
                 f" echo {round} >deep/er/est && echo {round} >>/workspace/log && sync")
        for path in ("fsync", "copied", "large", "deep/er/est", "../log"):
            path = os.path.normpath(f"{folder}/{path}")
            self.files[path] = self.get(path)
        assert self.files[f"{folder}/copied"] == self.files[f"{folder}/api/65537"]
        # The end of a command is on disk with its output when it is reported.
        lines = "".join(f"{number} {self.name}\n" for number in range(2000))
        exec_id = self.machine.cli("exec", self.name, "--detach", "--", "sh", "-c",
                                   f"i=0; while [ $i -lt 2000 ]; do echo $i {self.name}; i=$((i+1)); done").strip()
        assert self.machine.cli("logs", exec_id, "--follow") == lines
        self.ended[exec_id] = lines
        self.running = {self.machine.cli("exec", self.name, "--detach", "--", "sleep", "100000").strip()}
        self.open_shell(f"{folder}/shell")

    def open_shell(self, path):
        """Types a command into a shell, waits until it is done, and leaves the shell at its prompt."""
        shell = WebSocket(f"{self.machine.url}{self.path}/v1/shell/ws", {"Authorization": f"Bearer {self.token}"})
        assert shell.status == 101, f"a shell cannot be opened: {shell.status}"
        shell.send(type="start", name="default")
        self.running.add(shell.receive()["exec_id"])
        shell.send(type="stdin", data=f"echo typed >{path}; sync; echo do''ne\n")
        screen = ""
        while "done" not in screen:
            frame = shell.receive()
            assert frame is not None, f"the shell is gone: {screen}"
            screen += str(frame.get("data", ""))
        shell.close()
        self.files[path] = b"typed\n"

    def check(self, test):
        """After the cut: stopped, with the cause; each command that ran is reported as lost."""
        events = self.machine.events_until(self.name, "SANDBOX_STOPPED")
        stopped = events[-1]
        test.assertEqual((stopped["reason"], stopped["sandbox_state"]), ("host_rebooted", "STOPPED"), stopped)
        lost = {event["exec_id"] for event in events if event["error_code"] == "HOST_REBOOTED" and event["exec_id"]}
        test.assertLessEqual(self.running, lost, f"{self.name}: commands that ran are not reported as lost")
        for exec_id in self.ended:
            test.assertNotIn(exec_id, lost, f"{self.name}: a command that had ended is reported as lost")
            output = self.machine.cli("logs", exec_id)
            test.assertEqual(output, self.ended[exec_id], f"{self.name}: the output of {exec_id} is not complete")

    def compare(self, test):
        for path, expected in self.files.items():
            found = self.get(path)
            what = f"{self.name}: {path} has {len(found)} bytes, {len(expected)} were written"
            test.assertEqual(hashlib.sha256(found).hexdigest(), hashlib.sha256(expected).hexdigest(), what)
        listed = self.run(f"cd / && find workspace -type f ! -name '{UNSYNCED}*'").split()
        listed = ["/" + path for path in listed]
        test.assertEqual(sorted(listed), sorted(self.files), f"{self.name}: other files than were written")


class Named(Sandbox):
    """A sandbox that its owner created and resumes."""

    def create(self):
        self.machine.cli("create", "--image", "host", "--name", self.name, "--idle", "0")

    def resume(self, test):
        listed = json.loads(self.machine.cli("ps", "--all", "--json"))["sandboxes"]
        states = {each["sandbox_id"]: each["state"] for each in listed}
        test.assertEqual(states[self.name], "STOPPED")
        self.machine.cli("resume", self.name)


class OfSession(Sandbox):
    """The sandbox of a session, which `ensure` starts again."""

    def ensure(self):
        return json.loads(self.machine.request("POST", "/v1/sandbox/sessions", {
            "thread_id": "power", "mode": "ensure", "wait_seconds": 60}))

    def create(self):
        self.session = self.ensure()
        self.name = self.session["sandbox"]["id"]

    def resume(self, test):
        shown = json.loads(self.machine.request("GET", f"/v1/sandbox/sessions/{self.session['session_id']}"))["binding"]
        test.assertEqual((shown["state"], shown.get("reason")), ("suspended", "host_rebooted"), shown)
        ensured = self.ensure()
        for key in ("session_id", "image"):
            test.assertEqual(ensured[key], self.session[key])
        test.assertEqual(ensured["sandbox"]["id"], self.name)
        test.assertEqual(ensured["binding"]["generation"], self.session["binding"]["generation"])


class PowerTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="vm-power-", dir=TARGET)
        self.addCleanup(folder.cleanup)
        self.machine = Machine(pathlib.Path(folder.name))
        self.addCleanup(self.machine.end)

    def test_sandboxes_and_files_survive_a_power_cut_and_another_one(self):
        try:
            self.cut_twice()
        except BaseException:
            print("".join(self.machine.log.read_text(errors="replace").splitlines(True)[-60:]))
            raise

    def step(self, what):
        now = time.monotonic()
        print(f"{now - self.began:5.0f} s  {what}", flush=True)

    def cut_twice(self):
        self.began = time.monotonic()
        self.machine.boot()
        self.step("booted")
        sandboxes = [Named(self.machine, "power-demo"), OfSession(self.machine, "session")]
        for sandbox in sandboxes:
            sandbox.create()
            sandbox.open()
        self.step("sandboxes created")
        for round in (1, 2):
            for sandbox in sandboxes:
                sandbox.use(round)
            last = sandboxes[0]
            last.run(f"head -c 100000 /dev/urandom >/workspace/{UNSYNCED}{round}")
            # Nothing comes between the answer and the cut.
            last.put(f"/workspace/last-{round}", last.random.randbytes(300000))
            self.machine.cut()
            self.step(f"cut {round}")
            self.machine.boot()
            self.step("booted again")
            for sandbox in sandboxes:
                sandbox.check(self)
                sandbox.resume(self)
                sandbox.open()
                sandbox.compare(self)
            # Else nothing was cut, and the files above show nothing.
            size = last.run(f"cat /workspace/{UNSYNCED}{round} 2>/dev/null | wc -c").strip()
            self.assertNotEqual(size, "100000", "a file that nothing has synced survived the cut")
            self.step("every file compared")


if __name__ == "__main__":
    unittest.main()
