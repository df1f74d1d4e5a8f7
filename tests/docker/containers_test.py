"""Sandboxes in containers of a real Docker engine: the same URLs and tokens as for any other, whatever happens to the
server, to the engine, or to a container."""

import http.client
import json
import os
import pathlib
import signal
import subprocess
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

from server import TARGET, Server
from websocket import WebSocket

ENGINE = pathlib.Path(os.environ["TEST_DOCKER_ENGINE"])
SOCKET = ENGINE / "docker.sock"
IMAGE = "ringfence-test"
# A secret of a provider: nobody may ever see it. Nor may anybody be told where the engine is.
CANARY = "canary-6f1d2c"


def settings(folder, more="", socket=SOCKET):
    password = folder / "password"
    password.write_text(CANARY)
    password.chmod(0o644)
    return f"""
[providers.docker]
enabled = true
socket = "{socket}"
image = "{IMAGE}"

[images.registries."registry.example.com"]
username = "somebody"
password_file = "{password}"

[log]
filter = "debug"
{more}"""


class Engine:
    """The engine, seen from outside."""

    def call(method, path, body=None):
        command = ["curl", "--silent", "--fail", "--max-time", "60", "--unix-socket", SOCKET, "--request", method]
        if body is not None:
            command += ["--header", "Content-Type: application/json", "--data", json.dumps(body)]
        answer = subprocess.run([*command, f"http://docker{path}"], capture_output=True, text=True)
        return json.loads(answer.stdout or "null") if answer.returncode == 0 else None

    def container(sandbox):
        return Engine.call("GET", f"/containers/ringfence-{sandbox}/json")

    def start():
        subprocess.run(["scripts/docker-engine", "start", ENGINE], check=True)

    def stop():
        subprocess.run(["scripts/docker-engine", "stop", ENGINE], check=True)


    def kill():
        """Ends it as a crash does, and leaves its containers."""
        process = int((ENGINE / "pid").read_text())
        os.kill(process, signal.SIGKILL)
        subprocess.run(["tail", f"--pid={process}", "--follow", "/dev/null"], check=True, timeout=30)


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def code(self):
        return self.status, self.json["error"]["code"]


class Case(unittest.TestCase):
    """A server, and what a client does with it."""

    MORE = ""

    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.server.config.write_text(settings(cls.server.path, cls.MORE))
        cls.server.start()
        cls.addClassCleanup(cls.server.stop)
        cls.key = (cls.server.path / "data/admin.key").read_text().strip()
        cls.seen = []

    def setUp(self):
        self.thread = self.id().rsplit(".", 1)[-1].replace("_", "-")[-100:]

    def destroy(self, thread, sandbox, key=None):
        """Sandboxes outlive the server, and nobody is to find this one."""
        self.request("DELETE", f"/threads/{thread}/sandbox", key=key)
        self.gone(sandbox)

    def request(self, method, url, body=None, key=None, token=None, raw=None):
        url = url if url.startswith("http") else self.server.url + url
        headers = {"Authorization": f"Bearer {token}"} if token else {"X-Api-Key": key or self.key}
        data = raw
        if body is not None:
            data, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        asked = urllib.request.Request(url, data, headers, method=method)
        try:
            with urllib.request.urlopen(asked, timeout=60) as answer:
                told = Answer(answer.status, answer.headers, answer.read())
        except urllib.error.HTTPError as error:
            told = Answer(error.code, error.headers, error.read())
        self.seen.append(f"{told.headers}\n{told.body.decode(errors='replace')}")
        return told

    def ensure(self, **more):
        body = {"thread_id": self.thread, "mode": "ensure", "provider_preference": "docker", "wait_seconds": 60, **more}
        return self.request("POST", "/v1/sandbox/sessions", body)

    def session(self, **more):
        answer = self.ensure(**more)
        self.assertEqual(answer.status, 200, answer.body)
        self.addCleanup(self.destroy, self.thread, answer.json["sandbox"]["id"])
        return answer.json

    def run_in(self, session, command, **more):
        url = session["sandbox"]["http_base_url"] + "/exec"
        return self.request("POST", url, {"command": command, **more}, token=session["token"])

    def output(self, session, command, **more):
        answer = self.run_in(session, command, **more)
        self.assertEqual(answer.status, 200, answer.body)
        self.assertEqual(answer.json["exit_code"], 0, answer.body)
        return answer.json["stdout"]

    def events(self, session, until):
        """Returns the events of a sandbox as far as one of which this is true."""
        where = urllib.parse.urlsplit(session["sandbox"]["http_base_url"])
        connection = http.client.HTTPConnection(where.netloc, timeout=60)
        connection.request("GET", where.path + "/events?from=0", headers={"Authorization": "Bearer " + session["token"]})
        found = []
        for line in connection.getresponse():
            self.seen.append(line.decode())
            if line.startswith(b"data:"):
                found.append(json.loads(line[5:]))
                if until(found[-1]):
                    break
        connection.close()
        return found

    def gone(self, sandbox):
        """Waits until nothing is left of a sandbox. The engine tells when a container is destroyed."""
        self.wait(lambda: Engine.container(sandbox) is None)
        self.wait(lambda: not (self.server.path / "data/docker" / sandbox).exists())
        self.wait(lambda: not (self.server.path / "data/sandboxes" / sandbox).exists())

    def complaints(self):
        """Returns what the server has complained of."""
        lines = (self.server.path / "log").read_text().splitlines()
        return "\n".join(line for line in lines if " WARN " in line or "ERROR" in line)

    def wait(self, until, seconds=60):
        process = subprocess.Popen(["sleep", str(seconds)])
        try:
            while not until():
                self.assertIsNone(process.poll(), "it did not come to be in time")
                try:
                    process.wait(0.1)
                except subprocess.TimeoutExpired:
                    pass
        finally:
            process.kill()
            process.wait()


class ContainersTest(Case):
    def test_a_thread_gets_a_container_and_everything_that_any_sandbox_has(self):
        session = self.session()
        sandbox = session["sandbox"]["id"]
        self.assertEqual((session["sandbox"]["provider"], session["binding"]["provider"]), ("docker", "docker"))
        self.assertEqual((session["image"], session["binding"]["state"]), (IMAGE, "active"))
        self.assertEqual(Engine.container(sandbox)["State"]["Running"], True)
        self.assertEqual(self.session()["sandbox"]["id"], sandbox)

        self.assertEqual(self.output(session, "id -u; pwd; echo $FROM_IMAGE; cat", input="in"), "1000\n/workspace\nyes\nin")
        self.assertEqual(self.run_in(session, "exit 3").json["exit_code"], 3)
        self.assertEqual(self.run_in(session, "sleep 60", timeout_seconds=1).json["reason"], "timed_out")

        base, token = session["sandbox"]["http_base_url"], session["token"]
        bytes_ = bytes(range(256)) * 1000
        up = self.request("POST", f"{base}/files/upload?path=/workspace/file", raw=bytes_, token=token)
        self.assertEqual(up.status // 100, 2, up.body)
        down = urllib.request.Request(f"{base}/files/download?path=/workspace/file", headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(down) as answer:
            self.assertEqual(answer.read(), bytes_)
        self.assertEqual(self.output(session, "wc -c </workspace/file").strip(), str(len(bytes_)))

        self.output(session, "echo hello >/workspace/index.html; httpd -p 127.0.0.1:8000 -h /workspace")
        page = self.request("GET", f"{self.server.url}/dp/{sandbox}/ports/8000/", token=token)
        self.assertEqual((page.status, page.body), (200, b"hello\n"))

        shell = WebSocket(session["sandbox"]["ws_base_url"] + "/shell/ws", {"Authorization": f"Bearer {token}"})
        self.assertEqual(shell.status, 101)
        shell.send(type="start")
        shell.send(type="stdin", data="echo in-$((40 + 2))-shell; exit 7\n")
        text, frame = "", shell.receive()
        while frame and frame["type"] != "exit":
            text += frame.get("data", "") if frame["type"] in ("screen", "stdout") else ""
            frame = shell.receive()
        shell.close()
        self.assertEqual((frame or {}).get("exit_code"), 7, text)
        self.assertIn("in-42-shell", text)

    def test_code_in_a_container_has_no_network_no_rights_and_nothing_of_the_machine(self):
        session = self.session()
        status = dict(line.split(":\t", 1) for line in self.output(session, "cat /proc/self/status").splitlines())
        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            self.assertEqual(int(status[name], 16), 0, name)
        self.assertEqual((status["NoNewPrivs"], status["Seccomp"]), ("1", "2"))
        self.assertEqual(self.output(session, "ls /sys/class/net").split(), ["lo"])
        where = self.server.url
        self.assertNotEqual(self.run_in(session, f"wget -T 3 -q -O - {where}/healthz").json["exit_code"], 0)
        self.assertNotEqual(self.run_in(session, "unshare -r true").json["exit_code"], 0)
        # What is left of the door is the program that came through it.
        self.assertEqual(self.output(session, "ls /run/ringfence").split(), ["init"])
        self.assertNotEqual(self.run_in(session, "touch /run/ringfence/x").json["exit_code"], 0)
        self.assertEqual(self.output(session, "cat /proc/1/environ /proc/1/maps 2>/dev/null; ls /proc/1/fd 2>/dev/null; true"), "")
        mounts = self.output(session, "cat /proc/self/mountinfo")
        self.assertNotIn("docker.sock", mounts)
        refused = self.run_in(session, "id", user="root")
        self.assertEqual(refused.code, (400, "INVALID_REQUEST"))

    def test_limits_are_those_of_the_container(self):
        session = self.session()
        config = Engine.container(session["sandbox"]["id"])["HostConfig"]
        self.assertEqual((config["Memory"], config["MemorySwap"], config["PidsLimit"]), (2 << 30, 2 << 30, 1024))
        self.assertEqual((config["NetworkMode"], config["CapDrop"], config["Privileged"]), ("none", ["ALL"], False))
        self.assertEqual(config["LogConfig"]["Type"], "none")

    def test_what_a_container_cannot_be_is_refused(self):
        for image in ("host", "tar:/srv/x.tar"):
            answer = self.ensure(image=image)
            self.assertEqual(answer.status, 400, answer.body)
        missing = self.ensure(image="there-is-none")
        self.assertEqual(missing.code, (404, "IMAGE_NOT_FOUND"))
        self.assertIn("does not have it", missing.json["error"]["message"])

    def test_stopping_keeps_files_and_destroying_leaves_nothing(self):
        session = self.session()
        sandbox = session["sandbox"]["id"]
        self.output(session, "echo kept >/workspace/kept; echo root >/tmp/too")
        released = self.request("DELETE", f"/v1/sandbox/sessions/{session['session_id']}")
        self.assertEqual(released.status, 204)
        again = self.session()
        self.assertEqual((again["sandbox"]["id"], again["binding"]["generation"]), (sandbox, 2))
        self.assertEqual(self.output(again, "cat /workspace/kept /tmp/too"), "kept\nroot\n")
        stopped = [event for event in self.events(again, lambda event: event.get("reason") == "released")]
        self.assertTrue(stopped)
        self.assertEqual(self.request("DELETE", f"/threads/{self.thread}/sandbox").status, 204)
        self.gone(sandbox)

    def test_a_killed_server_finds_its_containers_again_and_removes_what_is_nobodys(self):
        session = self.session()
        sandbox = session["sandbox"]["id"]
        url = session["sandbox"]["http_base_url"]
        self.output(session, "(while :; do echo >>/workspace/ticks; sleep 0.1; done) >/dev/null 2>&1 & echo $!")
        pid = Engine.container(sandbox)["State"]["Pid"]
        labels = Engine.container(sandbox)["Config"]["Labels"]
        unknown = "sb_" + sandbox.removeprefix("sb_")[::-1]
        orphan = {"Image": IMAGE, "Cmd": ["sleep", "600"], "Labels": {**labels, "dev.ringfence.sandbox": unknown}}
        stranger = {"Image": IMAGE, "Cmd": ["sleep", "600"], "Labels": {**labels, "dev.ringfence.node": "node_other"}}
        for name, body in ((f"ringfence-{unknown}", orphan), ("stranger", stranger)):
            self.assertIsNotNone(Engine.call("POST", f"/containers/create?name={name}", body))
        self.addCleanup(Engine.call, "DELETE", "/containers/stranger?force=true")
        self.server.kill()
        self.server.start()
        again = self.session()
        self.assertEqual((again["sandbox"]["id"], again["session_id"]), (sandbox, session["session_id"]))
        self.assertEqual(again["sandbox"]["http_base_url"], url)
        self.assertEqual(Engine.container(sandbox)["State"]["Pid"], pid)
        before = int(self.output(session, "wc -l </workspace/ticks"))
        self.wait(lambda: int(self.output(again, "wc -l </workspace/ticks")) > before)
        self.wait(lambda: Engine.container(unknown) is None)
        self.assertIsNotNone(Engine.call("GET", "/containers/stranger/json"))

    def test_a_server_that_is_killed_while_a_container_is_made_comes_to_the_same_one(self):
        for number, delay in enumerate((0, 0.02, 0.05, 0.1, 0.2, 0.4)):
            thread = f"killed-{number}"
            begun = self.ensure(thread_id=thread, wait_seconds=0)
            self.assertIn(begun.status, (200, 423), begun.body)
            time.sleep(delay)
            self.server.kill()
            self.server.start()
            session = self.ensure(thread_id=thread).json
            sandbox = session["sandbox"]["id"]
            self.addCleanup(self.destroy, thread, sandbox)
            self.assertEqual(session["binding"]["generation"], 1, self.complaints())
            self.assertEqual(self.output(session, "echo made"), "made\n")
            filters = urllib.parse.quote(json.dumps({"label": ["dev.ringfence.sandbox"]}))
            there = Engine.call("GET", f"/containers/json?all=true&filters={filters}")
            of_it = [it["Names"] for it in there if it["Labels"]["dev.ringfence.sandbox"] == sandbox]
            self.assertEqual(of_it, [[f"/ringfence-{sandbox}"]])

    def test_while_the_engine_is_down_nobody_is_misled_and_nothing_is_lost(self):
        session = self.session()
        self.output(session, "echo kept >/workspace/kept")
        Engine.stop()
        try:
            plain = self.request("POST", "/v1/sandbox/sessions", {
                "thread_id": "down", "mode": "ensure", "provider_preference": "docker"})
            self.assertEqual(plain.code, (503, "PROVIDER_UNAVAILABLE"))
            self.assertEqual((plain.json["error"]["retryable"], plain.headers["Retry-After"]), (True, "1"))
            full = self.request("POST", "/v1/sandbox/sessions", {
                "scope": {"type": "thread", "id": "down"}, "mode": "ensure", "provider_preference": "docker"})
            self.assertEqual(full.code, (503, "BACKEND_UNAVAILABLE"))
            # Its container ended with the engine, and nobody can say so yet.
            self.wait(lambda: self.run_in(session, "true").status == 503)
            used = self.run_in(session, "true")
            self.assertEqual(used.code, (503, "PROVIDER_UNAVAILABLE"))
            self.assertEqual(used.headers["Retry-After"], "1")
            read = self.request("GET", session["sandbox"]["http_base_url"] + "/files/download?path=/workspace/kept",
                                token=session["token"])
            self.assertEqual(read.code, (503, "PROVIDER_UNAVAILABLE"))
            # Others go on.
            local = self.request("POST", "/v1/sandbox/sessions", {"thread_id": "local-one", "mode": "ensure"})
            self.assertEqual((local.status, local.json["sandbox"]["provider"]), (200, "local"), local.body)
            self.addCleanup(self.destroy, "local-one", local.json["sandbox"]["id"])
            self.assertEqual(self.output(local.json, "echo here"), "here\n")
        finally:
            Engine.start()
        self.wait(lambda: self.run_in(session, "true").status == 200)
        self.assertEqual(self.output(session, "cat /workspace/kept"), "kept\n")
        told = self.events(session, lambda event: event.get("reason") == "provider_stopped")
        self.assertEqual(told[-1]["reason"], "provider_stopped")
        self.assertEqual(self.session()["sandbox"]["id"], session["sandbox"]["id"])

    def test_sandboxes_whose_containers_live_go_on_without_the_engine(self):
        session = self.session()
        self.output(session, "echo kept >/workspace/kept")
        Engine.kill()
        try:
            self.assertEqual(self.output(session, "cat /workspace/kept"), "kept\n")
            self.assertEqual(self.session()["sandbox"]["id"], session["sandbox"]["id"])
            down = self.request("POST", "/v1/sandbox/sessions", {
                "thread_id": "down", "mode": "ensure", "provider_preference": "docker"})
            self.assertEqual(down.code, (503, "PROVIDER_UNAVAILABLE"))
            # The next server finds it without asking the engine.
            self.server.kill()
            self.server.start()
            self.assertEqual(self.output(session, "cat /workspace/kept"), "kept\n")
        finally:
            Engine.start()
        # An engine that starts ends what one before it has left; the sandbox is stopped then, and starts again.
        self.wait(lambda: self.run_in(session, "true").status == 200)
        self.assertEqual(self.output(session, "cat /workspace/kept"), "kept\n")

    def test_a_container_that_somebody_removes_is_told_and_replaced(self):
        session = self.session()
        sandbox = session["sandbox"]["id"]
        Engine.call("DELETE", f"/containers/ringfence-{sandbox}?force=true")
        told = self.events(session, lambda event: event["sandbox_state"] == "FAILED")
        self.assertIn("provider_lost", json.dumps(told[-1]))
        again = self.session()
        self.assertNotEqual(again["sandbox"]["id"], sandbox)
        self.assertEqual(again["binding"]["generation"], 2)
        self.assertEqual(self.run_in(session, "true").code, (409, "BINDING_SUPERSEDED"))

        # One that was stopped is not replaced in silence: its files are gone.
        self.assertEqual(self.request("DELETE", f"/v1/sandbox/sessions/{again['session_id']}").status, 204)
        self.wait(lambda: not Engine.container(again["sandbox"]["id"])["State"]["Running"])
        Engine.call("DELETE", f"/containers/ringfence-{again['sandbox']['id']}?force=true")
        lost = self.ensure()
        self.assertEqual(lost.code, (503, "PROVIDER_UNAVAILABLE"))
        self.assertIn("no more", lost.json["error"]["message"])
        self.assertEqual(self.session()["binding"]["generation"], 4)

    def test_tenants_do_not_see_each_others_containers(self):
        session = self.session()
        environment = {**os.environ, "RINGFENCE_URL": self.server.url, "RINGFENCE_API_KEY": self.key}
        made = subprocess.run([TARGET / "debug/ringfence", "key", "create", "other", "--tenant", "other", "--json"],
                              capture_output=True, text=True, env=environment, check=True)
        other = json.loads(made.stdout)["secret"]
        self.assertEqual(self.request("GET", f"/v1/sandbox/sessions/{session['session_id']}", key=other).status, 404)
        theirs = self.request("POST", "/v1/sandbox/sessions", {
            "thread_id": self.thread, "mode": "ensure", "provider_preference": "docker", "wait_seconds": 60}, key=other)
        self.assertEqual(theirs.status, 200, theirs.body)
        self.addCleanup(self.destroy, self.thread, theirs.json["sandbox"]["id"], other)
        self.assertNotEqual(theirs.json["sandbox"]["id"], session["sandbox"]["id"])
        crossed = self.request("POST", session["sandbox"]["http_base_url"] + "/exec", {"command": "true"},
                               token=theirs.json["token"])
        self.assertEqual(crossed.status, 401)

    def test_zz_nobody_is_told_where_the_engine_is_nor_a_secret_of_a_provider(self):
        log = (self.server.path / "log").read_text()
        self.assertTrue(len(self.seen) > 20 and len(log) > 1000)
        audit = self.request("GET", "/v1/audit")
        self.assertEqual(audit.status, 200)
        for secret in (str(SOCKET), CANARY):
            for text in [*self.seen, log]:
                self.assertNotIn(secret, text)


class IdleTest(Case):
    """A server that freezes what nobody uses for five seconds."""

    MORE = '[sessions]\nidle_timeout = "5s"\n'

    def paused(self, sandbox):
        return Engine.container(sandbox)["State"]["Paused"]

    def test_a_container_that_nobody_uses_stands_still_until_somebody_does(self):
        session = self.session()
        sandbox = session["sandbox"]["id"]
        self.wait(lambda: self.paused(sandbox))
        self.assertEqual(self.session()["binding"]["state"], "suspended")
        self.assertEqual(self.output(session, "echo awake"), "awake\n")
        self.assertFalse(self.paused(sandbox))

        self.wait(lambda: self.paused(sandbox))
        self.server.kill()
        self.server.start()
        self.assertEqual(self.output(session, "echo found"), "found\n")
        self.wait(lambda: self.paused(sandbox))


class IdleTest(Case):
    MORE = '[sessions]\nidle_timeout = "4s"\n'

    def state(self, session):
        return self.request("GET", f"/v1/sandbox/sessions/{session['session_id']}").json["binding"]["state"]

    def test_a_prompt_without_a_client_is_idle_and_a_background_job_that_computes_is_not(self):
        busy = self.session()
        self.output(busy, "setsid sh -c 'while :; do :; done' >/dev/null 2>&1 &")
        self.thread += "-prompt"
        prompt = self.session()
        shell = WebSocket(prompt["sandbox"]["ws_base_url"] + "/shell/ws", {"Authorization": f"Bearer {prompt['token']}"})
        shell.send(type="start")
        self.assertIsNotNone(shell.receive())
        shell.close()
        self.wait(lambda: self.state(prompt) == "suspended")
        # It has been unused for longer than the other.
        self.assertEqual(self.state(busy), "active")


class WithoutTest(unittest.TestCase):
    def test_a_server_that_has_no_engine_says_so(self):
        server = Server().start()
        self.addCleanup(server.stop)
        key = (server.path / "data/admin.key").read_text().strip()
        body = json.dumps({"thread_id": "one", "mode": "ensure", "provider_preference": "docker", "image": IMAGE})
        headers = {"X-Api-Key": key, "Content-Type": "application/json"}
        asked = urllib.request.Request(server.url + "/v1/sandbox/sessions", body.encode(), headers)
        with self.assertRaises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(asked)
        error = json.load(refused.exception)["error"]
        self.assertEqual((refused.exception.code, error["code"]), (400, "PROVIDER_DISABLED"))
        self.assertFalse(error["retryable"])
        self.assertIn("not enabled", error["message"])
