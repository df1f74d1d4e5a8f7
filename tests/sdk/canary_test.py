"""I18: whatever lets somebody in is seen by whoever it was given to, and nowhere else. A real server at the level trace does a bit of
everything, and each credential is looked for in all that came out of it."""

import base64
import hashlib
import http.client
import http.server
import json
import os
import pathlib
import ssl
import subprocess
import threading
import unittest
import urllib.parse

from server import TARGET, Server
from websocket import WebSocket

PORT = 8000
SERVER = f"""
from http.server import SimpleHTTPRequestHandler, HTTPServer
SimpleHTTPRequestHandler.log_message = lambda *_: None
server = HTTPServer(("127.0.0.1", {PORT}), SimpleHTTPRequestHandler)
print("listens", flush=True)
server.serve_forever()
"""
PASSWORD = "canary-password-7d1f"
REGISTRY_TOKEN = "canary-registry-token-93ab"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
EXCHANGE = {"grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "subject_token_type": "urn:ietf:params:oauth:token-type:access_token"}


class Registry(http.server.BaseHTTPRequestHandler):
    """Wants a password, or a token that a password gets, and repeats what it is told in its errors."""

    heard = []

    def do_GET(self):
        credential = self.headers.get("Authorization", "")
        self.heard.append(credential)
        if self.path.startswith("/token"):
            return self.say(200, json.dumps({"token": REGISTRY_TOKEN}))
        if credential:
            message = f"{credential} is not let in: {PASSWORD} {REGISTRY_TOKEN}"
            return self.say(403, json.dumps({"errors": [{"code": "DENIED", "message": message, "detail": message}]}))
        here = "%s:%d" % self.server.server_address
        wanted = "Basic realm=\"x\"" if "/basic/" in self.path else f"Bearer realm=\"http://{here}/token\",service=\"x\""
        self.say(401, "{}", {"WWW-Authenticate": wanted})

    do_HEAD = do_GET

    def say(self, status, body, headers={}):
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body.encode())

    def log_message(self, *_):
        pass


class Canary(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.registry = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Registry)
        threading.Thread(target=self.registry.serve_forever, daemon=True).start()
        self.addCleanup(self.registry.server_close)
        self.addCleanup(self.registry.shutdown)
        self.images = "127.0.0.1:%d" % self.registry.server_address[1]
        self.server = Server()
        self.addCleanup(self.stop)
        folder = self.server.path
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                        "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,DNS:*.localhost,IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE",
                        "-keyout", folder / "key.pem", "-out", folder / "cert.pem"], check=True, capture_output=True)
        (folder / "password").write_text(PASSWORD)
        for name in ("key.pem", "password"):
            (folder / name).chmod(0o644)
        self.server.config.write_text(f"""
tls = {{ cert = "{folder}/cert.pem", key = "{folder}/key.pem" }}
log = {{ filter = "trace,h2=trace" }}
tokens = {{ opaque_tenants = ["quiet"] }}
sessions = {{ image = "host" }}
[images.registries."{self.images}"]
username = "somebody"
password_file = "{folder}/password"
""")
        self.server.start()
        self.tls = ssl.create_default_context(cafile=folder / "cert.pem")
        self.host = urllib.parse.urlsplit(self.server.url).netloc
        # By name; and what came out, by where.
        self.secrets, self.seen = {}, []
        self.key = (folder / "data/admin.key").read_text().strip()
        self.secrets["admin key"] = self.key
        self.secrets["provider credential"] = PASSWORD
        self.secrets["token of a registry"] = REGISTRY_TOKEN

    def stop(self):
        # It has ended by now, unless something was wrong.
        if self.server.process.poll() is None:
            for sandbox in json.loads(self.run_command("ps", "--json"))["sandboxes"]:
                self.run_command("rm", sandbox["sandbox_id"])
            self.server.stop()
        self.server.log.close()
        self.server.folder.cleanup()

    def raw(self, method, path, body="", headers={}, host=None):
        """Asks; returns the status, the headers as text, and the body."""
        connection = http.client.HTTPSConnection(self.host, context=self.tls, timeout=60)
        connection.request(method, path, body, {**headers, **({"Host": host} if host else {})})
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace")
        connection.close()
        return answer.status, str(answer.headers), text

    def ask(self, method, path, body=None, credential=None, headers={}, form=None, status=None, grants={}):
        """Asks. What it grants is known from then on, and is taken out of the answer, which must not have it twice."""
        sent = {"Authorization": f"Bearer {credential or self.key}", **headers}
        if form is not None:
            sent |= FORM
            body = urllib.parse.urlencode(form)
        elif body is not None:
            sent.setdefault("Content-Type", "application/json")
            body = body if isinstance(body, str) else json.dumps(body)
        answered, head, text = self.raw(method, path, body or "", {name: it for name, it in sent.items() if it})
        if status is None:
            self.assertTrue(200 <= answered < 300, f"{method} {path}: {answered} {text}")
        else:
            self.assertEqual(answered, status, f"{method} {path}: {text}")
        shown = json.loads(text) if text.startswith(("{", "[")) else text
        for name, place in grants.items():
            granted = shown
            for part in place.split("."):
                granted = granted[part]
            self.secrets[name] = granted
            text = text.replace(granted, "")
        self.seen.append((f"answer to {method} {path[:60]}", head + text))
        return shown

    def run_command(self, *arguments, grants=None, stdin=None, fails=False):
        """Runs the command; returns what it prints."""
        environment = {**os.environ, "RINGFENCE_URL": self.server.url, "RINGFENCE_DATA": str(self.server.path / "data"),
                       "RINGFENCE_CA_CERT": str(self.server.path / "cert.pem")}
        ran = subprocess.run([TARGET / "debug/ringfence", *arguments], env=environment, capture_output=True, text=True, input=stdin)
        self.assertEqual(ran.returncode != 0, fails, f"{arguments}: {ran.stderr}")
        out = ran.stdout
        if grants:
            name, place = grants
            self.secrets[name] = json.loads(out)[place]
            out = out.replace(self.secrets[name], "")
        self.seen.append(("ringfence " + " ".join(arguments)[:60], out + ran.stderr))
        return ran.stdout

    def talk(self, path, frames, until, headers={}):
        """Talks over a WebSocket until something is said; keeps all that was."""
        wire = WebSocket(self.server.url + path, headers, tls=self.tls)
        for frame in frames:
            wire.send(**frame)
        said = []
        while (frame := wire.receive()) is not None:
            said.append(frame)
            if frame.get("type") == until:
                break
        wire.close()
        self.seen.append((f"WebSocket {path}", json.dumps(said)))
        return said

    def test_credentials_are_seen_by_whom_they_were_given_to_and_nowhere_else(self):
        sandbox, token = self.grant()
        serving = self.use(sandbox, token)
        self.misuse(sandbox, token)
        self.look(sandbox)
        self.processes(sandbox)
        self.server_ends(sandbox, serving)
        self.judge(sandbox)

    def grant(self):
        """Has one of every credential given out; returns a sandbox and a token for it."""
        self.ask("POST", "/v1/admin/keys", {"name": "ci"}, grants={"API key": "secret"})
        self.run_command("key", "create", "laptop", "--json", grants=("API key of a command", "secret"))
        self.ask("POST", "/v1/admin/keys", {"name": "quiet", "tenant": "quiet"}, grants={"API key of another tenant": "secret"})
        session = {"thread_id": "thr_1", "mode": "ensure"}
        first = self.ask("POST", "/v1/sandbox/sessions", session, grants={"session token": "token"})
        sandbox, token = first["sandbox"]["id"], first["token"]
        self.secrets["sandbox secret"] = hashlib.sha256(
            (self.server.path / "data/node.key").read_bytes() + sandbox.encode()).digest()
        path = "/v1/sandbox/sessions/" + first["session_id"]
        self.ask("GET", path, grants={"token of a session that is looked at": "token"})
        self.ask("POST", path + "/refresh", grants={"refreshed token": "token"})
        self.ask("POST", path + "/refresh-token", {"current_token": self.secrets["refreshed token"]},
                 grants={"token for another": "token"})
        self.ask("POST", path + "/heartbeat")
        self.ask("POST", "/threads/thr_1/sandbox", {}, grants={"token of a thread": "token"})
        self.ask("POST", "/v1/admin/tokens", {"sandbox": sandbox, "format": "opaque"}, grants={"opaque token": "token"})
        exchange = {**EXCHANGE, "subject_token": token, "scope": "fs:ro"}
        self.ask("POST", "/oauth/token", form=exchange, grants={"downscoped token": "access_token"})
        self.run_command("token", "mint", "--sandbox", sandbox, "--json", grants=("token of a command", "token"))
        box = "/v2/sandboxes/boxes/" + sandbox
        self.ask("POST", box + "/download-url", {"path": "/etc/hosts"}, grants={"download token": "token"})
        self.ask("POST", box + "/service-url", {"port": PORT}, grants={"service token": "token", "browser URL": "browser_url"})
        self.ask("POST", f"/dp/{sandbox}/v1/ports/{PORT}/preview", {}, credential=token, grants={"preview link": "url"})
        self.mcp("environment_acquire", {"thread_id": "thr_1", "include_token": True}, grants="token of an agent")
        return sandbox, token

    def mcp(self, tool, arguments, grants=None, credential=None):
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
        sent = {"Authorization": f"Bearer {credential or self.key}", "Content-Type": "application/json",
                "Accept": "application/json, text/event-stream"}
        status, head, text = self.raw("POST", "/mcp", json.dumps(body), sent)
        self.assertEqual(status, 200, text)
        if grants:
            data = next(line for line in text.splitlines() if "{" in line)
            result = json.loads(data[data.index("{"):])["result"]
            self.secrets[grants] = result["structuredContent"]["token"]
            text = text.replace(self.secrets[grants], "")
        self.seen.append((f"tool {tool}", head + text))

    def use(self, sandbox, token):
        """Uses each of them; returns a command that goes on."""
        command = [TARGET / "debug/ringfence", "exec", sandbox, "--", "python3", "-c", SERVER]
        environment = {**os.environ, "RINGFENCE_URL": self.server.url, "RINGFENCE_DATA": str(self.server.path / "data"),
                       "RINGFENCE_CA_CERT": str(self.server.path / "cert.pem")}
        serving = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        self.addCleanup(serving.communicate)
        self.addCleanup(serving.kill)
        self.assertEqual(serving.stdout.readline(), "listens\n")
        inside = "env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null; cat /proc/self/mountinfo"
        tokens = [name for name in self.secrets if "token" in name and name not in (
            "download token", "service token", "token of a registry")]
        for name in tokens:
            self.ask("GET", f"/dp/{sandbox}/v1/access", credential=self.secrets[name])
        self.ask("POST", f"/dp/{sandbox}/v1/exec", {"command": ["/bin/sh", "-c", inside]}, credential=token)
        self.ask("POST", f"/dp/{sandbox}/execute", {"command": inside})
        self.ask("POST", f"/dp/{sandbox}/execute/stream/start", {"command": "echo out"})
        self.ask("PUT", f"/dp/{sandbox}/files/workspace/a", "text", credential=token, headers={"Content-Type": "text/plain"})
        self.ask("GET", f"/dp/{sandbox}/files/workspace/a", credential=self.secrets["downscoped token"])
        self.ask("GET", f"/dp/{sandbox}/v1/files/list?path=/", credential=self.secrets["opaque token"])
        start = [{"type": "auth", "token": token}, {"type": "start", "command": ["/bin/sh", "-c", "read line; " + inside]},
                 {"type": "auth", "token": self.secrets["refreshed token"]}, {"type": "stdin", "data": "\n"}]
        for path in ("/v1/shell/ws", "/v1/exec/ws"):
            self.assertEqual(self.talk(f"/dp/{sandbox}{path}", start, "exit")[-1]["exit_code"], 0)
        code = {"v": 1, "ts": "2026-01-01T00:00:00.000Z", "type": "execute", "id": "a", "language": "shell", "code": inside,
                "limits": {"timeout_ms": 30000, "memory_mb": 256}}
        said = self.talk("/ws", [code], "result", {"X-Api-Key": self.secrets["API key"]})
        self.assertEqual(said[-1]["type"], "result", said)
        self.raw_seen("GET", f"/dp/{sandbox}/link/{self.secrets['download token']}", 200)
        service = {"X-Langsmith-Sandbox-Service-Token": self.secrets["service token"]}
        self.raw_seen("GET", f"/dp/{sandbox}/ports/{PORT}/", 200, service)
        self.ask("GET", f"/dp/{sandbox}/ports/{PORT}/", credential=token)
        self.preview("preview link", "cookie of a preview")
        self.preview("browser URL", "cookie of a browser")
        self.mcp("exec", {"command": inside}, credential=token)
        self.mcp("run_code", {"language": "shell", "code": inside})
        self.run_command("mcp", stdin='{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}\n')
        self.run_command("create", "--image", "host", "--name", "demo", "--json")
        self.run_command("exec", "demo", "--", "sh", "-c", inside)
        self.run_command("run", "-l", "shell", "-c", inside)
        for kind in ("basic", "bearer"):
            self.run_command("image", "pull", f"{self.images}/{kind}/image:1", "--json", fails=True)
            self.run_command("create", "--image", f"{self.images}/{kind}/image:1", "--name", f"failed-{kind}", "--json", fails=True)
            self.run_command("events", f"failed-{kind}", "--json")
            self.run_command("rm", f"failed-{kind}")
            self.ask("POST", "/v2/sandboxes/snapshots", {"name": kind, "docker_image": f"{self.images}/{kind}/image:1"})
        self.assertIn("Basic " + self.basic(), Registry.heard)
        self.assertIn("Bearer " + REGISTRY_TOKEN, Registry.heard)
        return serving

    def basic(self):
        return base64.b64encode(f"somebody:{PASSWORD}".encode()).decode()

    def raw_seen(self, method, path, status, headers={}, host=None):
        answered, head, text = self.raw(method, path, headers=headers, host=host)
        self.assertEqual(answered, status, f"{path[:60]}: {text}")
        self.seen.append((f"answer to {method} {path[:30]}", head + text))
        return head

    def preview(self, link, name):
        """Enters by a link, which leaves a cookie, and uses that."""
        url = urllib.parse.urlsplit(self.secrets[link])
        answered, head, text = self.raw("GET", f"{url.path}?{url.query}", host=url.netloc)
        self.assertEqual(answered, 303, text)
        cookie = head.split("ringfence_preview=")[1].split(";")[0]
        self.secrets[name] = cookie
        self.secrets["ticket of " + link] = url.query.split("=", 1)[1]
        self.seen.append((f"answer to {link}", (head + text).replace(cookie, "")))
        self.raw_seen("GET", "/", 200, {"Cookie": f"ringfence_preview={cookie}"}, url.netloc)

    def misuse(self, sandbox, token):
        """Shows them where they do not belong."""
        sessions, key = "/v1/sandbox/sessions", self.secrets["API key"]
        nobody = {"Authorization": None}
        for secret in (token, key, self.secrets["opaque token"]):
            self.ask("GET", f"/dp/{sandbox}/v1/access?token={secret}", headers=nobody, status=401)
            self.ask("GET", f"/{secret}", status=404)
            self.ask("GET", f"{sessions}/{secret}", status=404)
            self.ask("GET", f"/dp/{secret}/v1/access", status=401)
            self.ask("POST", sessions, {"thread_id": "t", "mode": secret}, status=400)
            self.ask("POST", sessions, {"thread_id": "t", "mode": "get", "requested_capabilities": [secret]}, status=400)
            self.ask("POST", sessions, "{" + secret, status=400)
            self.ask("GET", "/v1/audit?" + urllib.parse.urlencode({secret: secret}), status=400)
            self.ask("GET", "/healthz", headers={"X-Request-Id": secret, "User-Agent": secret, "Referer": secret})
            self.ask("GET", sessions + "/x", headers={"Authorization": f"Basic {secret}"}, status=401)
            self.ask("GET", sessions + "/x", headers={"Authorization": secret}, status=401)
            self.ask("POST", "/oauth/token", form={**EXCHANGE, "subject_token": secret, "scope": secret,
                                                   "resource": "sandbox:" + sandbox}, headers=nobody, status=400)
            self.ask("POST", "/v1/admin/tokens", {"sandbox": secret}, status=404)
            self.talk(f"/dp/{sandbox}/v1/shell/ws", [{"type": "auth", "token": secret + "x"}], "error")
            self.mcp("exec", {secret: secret})
            self.ask("POST", "/oauth/introspect", form={"token": secret})
        self.ask("GET", f"/internal/tokens/{token}")
        self.ask("POST", f"/v1/admin/sandboxes/{sandbox}/rotate-key")
        self.ask("GET", f"/dp/{sandbox}/v1/access", credential=token, status=401)
        self.ask("POST", "/oauth/revoke", form={"token": token})
        listed = self.ask("GET", "/v1/admin/keys")["keys"]
        ci = next(it["id"] for it in listed if it["name"] == "ci")
        self.ask("DELETE", "/v1/admin/keys/" + ci)
        self.ask("GET", sessions + "/x", credential=key, status=401)

    def look(self, sandbox):
        """Asks for all that can be looked at."""
        for path in ("/metrics", "/readyz", "/openapi.json", "/docs", "/v1/audit?limit=1000", "/v2/sandboxes/boxes", "/v2/sandboxes/snapshots",
                     "/v1/admin/keys", "/v2/sandboxes/boxes/" + sandbox):
            self.ask("GET", path)
        for command in (["ps"], ["key", "list"], ["image", "list"], ["audit", "list"], ["events", sandbox], ["events", "demo"], ["doctor"]):
            self.run_command(*command, "--json")
        self.run_command("audit", "export")
        self.run_command("serve", "--print-config", "--config", str(self.server.config))
        self.ask("POST", "/v1/admin/tokens", {"sandbox": sandbox}, grants={"token after the rotation": "token"})
        connection = http.client.HTTPSConnection(self.host, context=self.tls, timeout=60)
        headers = {"Authorization": "Bearer " + self.secrets["token after the rotation"]}
        connection.request("GET", f"/dp/{sandbox}/v1/events?from=0", headers=headers)
        answer, text = connection.getresponse(), ""
        self.assertEqual(answer.status, 200)
        while "SANDBOX_READY" not in text:
            text += answer.readline().decode()
        connection.close()
        self.seen.append(("events", text))

    def processes(self, sandbox):
        """Looks at every process that there is; those of the server and of its sandboxes are among them."""
        mine, count = {os.getpid()}, 0
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            if int(process.name) in mine:
                continue
            for name in ("cmdline", "environ"):
                try:
                    text = (process / name).read_bytes()
                except OSError:
                    continue
                count += 1
                self.seen.append((f"{process}/{name}", text))
        self.assertGreater(count, 10)

    def server_ends(self, sandbox, serving):
        serving.kill()
        self.secrets["master key"] = (self.server.path / "data/tokens.key").read_bytes()
        self.secrets["key of the node"] = (self.server.path / "data/node.key").read_bytes()
        pem = (self.server.path / "key.pem").read_text().splitlines()
        self.secrets["TLS key"] = pem[1]
        self.ask("DELETE", "/threads/thr_1/sandbox", status=204)
        # It returns when they are gone.
        self.run_command("rm", sandbox, "demo")
        # The log is whole when the server has ended; the folder stays until then.
        self.server.process.terminate()
        out, _ = self.server.process.communicate()
        self.seen.append(("output of the server", out))
        self.seen.append(("log", (self.server.path / "log").read_text()))
        for file in (self.server.path / "data").rglob("*"):
            # Files of sandboxes are in a large one.
            if file.is_file() and file.suffix != ".key" and file.stat().st_size < 1 << 26:
                self.seen.append((f"{file}", file.read_bytes()))

    def forms(self, secret):
        """Returns what a secret may look like."""
        if isinstance(secret, bytes):
            encoded = base64.b64encode(secret).decode()
            return [secret, secret.hex(), secret.hex().upper(), encoded.rstrip("="), encoded.translate(str.maketrans("+/", "-_")).rstrip("="),
                    ", ".join(map(str, secret[:8]))]
        more = [self.basic()] if secret == PASSWORD else []
        if secret.count(".") == 2:
            # The signature alone is as good as all of it.
            more.append(secret.rsplit(".", 1)[1])
        return [secret, urllib.parse.quote(secret, safe=""), *more]

    def find(self, form):
        """Returns where something is, with what is around it."""
        form = form if isinstance(form, bytes) else form.encode()
        for where, text in self.seen:
            text = text if isinstance(text, bytes) else text.encode()
            if (at := text.find(form)) >= 0:
                yield where, text[max(0, at - 120):at] + b"<HERE>" + text[at + len(form):at + len(form) + 60]

    def judge(self, sandbox):
        # What is no secret is found in all of these, so that they were looked through.
        places = {where for where, _ in self.find(sandbox)}
        store = str(self.server.path / "data/ringfence.db")
        for place in ("log", "events", "answer to GET /v1/audit?limit=1000", "ringfence audit export", "ringfence ps --json",
                      f"ringfence events {sandbox} --json", store):
            self.assertTrue(any(where.startswith(place) for where in places), f"{place}: {places}")
        self.assertTrue(any(where.endswith("/cmdline") for where, _ in self.find("SimpleHTTPRequestHandler")))
        self.assertIn("TRACE", next(text for where, text in self.seen if where == "log"))
        self.assertGreater(len(self.secrets), 20)
        found = [f"{name} is in {where}: {around!r}" for name, secret in self.secrets.items()
                 for form in self.forms(secret) for where, around in self.find(form)]
        self.assertEqual(found, [], "\n".join(found[:40]))


if __name__ == "__main__":
    unittest.main()
