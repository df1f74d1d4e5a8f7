"""What there is to be asked for: a sandbox with files, a command and a server in it, and whatever can be deleted once."""

import json
import os
import subprocess
import urllib.request

from server import TARGET

PORT = "8000"
# Takes every method and every path.
SERVER = """
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    def answer(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                self.rfile.read(size + 2)
        else:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.end_headers()
    log_message = lambda *_: None
    do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = do_OPTIONS = do_HEAD = do_TRACE = do_QUERY = answer
server = ThreadingHTTPServer(("127.0.0.1", %s), Handler)
print("listens", flush=True)
server.serve_forever()
""" % PORT


def ask(server, key, method, path, body=None, token=None):
    """Asks with a key, or with a token; returns what is answered."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {token}"} if token else {"X-Api-Key": key}
    headers["Content-Type"] = "application/json"
    request = urllib.request.Request(server.url + path, data=data, headers=headers, method=method)
    with urllib.request.urlopen(request) as answer:
        text = answer.read()
    return json.loads(text) if text.startswith((b"{", b"[")) else None


def session(server, key, thread):
    return ask(server, key, "POST", "/v1/sandbox/sessions", {"thread_id": thread, "mode": "ensure", "image": "host"})


def box(server, key):
    """Makes a box; returns its id, because a name can be changed."""
    return ask(server, key, "POST", "/v2/sandboxes/boxes", {"snapshot": "host"})["id"]


def snapshot(server, key, name):
    ask(server, key, "POST", "/v2/sandboxes/snapshots", {"name": name, "docker_image": "host"})
    return name


def serve(server, sandbox):
    """Has a server run in a sandbox until what is returned is ended."""
    environment = {**os.environ, "RINGFENCE_URL": server.url, "RINGFENCE_DATA": str(server.path / "data")}
    command = [TARGET / "debug/ringfence", "exec", sandbox, "--", "python3", "-c", SERVER]
    serving = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    if serving.stdout.readline() != "listens\n":
        raise RuntimeError("no server in the sandbox")
    return serving


def examples(server, key, used):
    """Returns requests that are to be answered with success, by operation: those that cannot be made up."""
    sandbox, token = used["sandbox"]["id"], used["token"]
    here = {"sandbox_id": sandbox}
    for name in ("edited", "moved"):
        ask(server, key, "POST", f"/dp/{sandbox}/v1/exec", {"command": f"echo one > /workspace/{name}"}, token)
    ask(server, key, "POST", f"/dp/{sandbox}/execute/stream/start", {"command": "echo out", "command_id": "kept"}, token)
    resume = [{"path_parameters": here, "body": {"command_id": "kept", "stdout_offset": 0, "stderr_offset": 0}}]
    refreshed, deleted = session(server, key, "refreshed"), session(server, key, "deleted")
    minted = ask(server, key, "POST", "/v1/admin/tokens", {"sandbox": sandbox})
    exchange = {"grant_type": "urn:ietf:params:oauth:grant-type:token-exchange", "subject_token": token,
                "subject_token_type": "urn:ietf:params:oauth:token-type:access_token"}
    edit = {"path": "/workspace/edited", "old_string": "one", "new_string": "two"}
    made = {
        "POST /dp/{sandbox_id}/execute/stream/resume": resume,
        "POST /dp/{sandbox_id}/v1/execute/stream/resume": resume,
        "POST /dp/{sandbox_id}/v1/files/edit": [{"path_parameters": here, "body": edit}],
        "POST /dp/{sandbox_id}/v1/files/move": [
            {"path_parameters": here, "body": {"from": "/workspace/moved", "to": "/workspace/there"}}],
        "POST /oauth/token": [{"body": exchange, "media_type": "application/x-www-form-urlencoded"}],
        "POST /threads/{thread_id}/sandbox/refresh": [
            {"path_parameters": {"thread_id": "refreshed"}, "body": {"current_token": refreshed["token"]}}],
        "DELETE /threads/{thread_id}/sandbox": [{"path_parameters": {"thread_id": deleted["thread_id"]}}],
        "POST /v1/admin/tokens": [{"body": {"sandbox": sandbox}}],
        "POST /v1/tokens": [{"body": {"sandbox": sandbox}}],
        "POST /v1/admin/tokens/revoke": [{"body": {"sandbox": sandbox, "jti": minted["jti"]}}],
    }
    for number, prefix in enumerate(("/v2", "/api/v2")):
        made |= {
            f"DELETE {prefix}/sandboxes/boxes/{{name}}": [{"path_parameters": {"name": box(server, key)}}],
            f"DELETE {prefix}/sandboxes/snapshots/{{reference}}": [
                {"path_parameters": {"reference": snapshot(server, key, f"ended-{number}")}}],
            f"DELETE {prefix}/sandboxes/templates/{{template}}": [
                {"path_parameters": {"template": snapshot(server, key, f"template-{number}")}}],
            f"POST {prefix}/sandboxes/templates": [{"body": {"name": f"new-{number}", "image": "host"}}],
        }
    for method in ("GET", "PUT", "POST", "PATCH", "DELETE", "OPTIONS"):
        for rest in ("", "/", "/{rest}"):
            at = {**here, "port": PORT, **({"rest": "a/b"} if rest == "/{rest}" else {})}
            made[f"{method} /dp/{{sandbox_id}}/ports/{{port}}{rest}"] = [{"path_parameters": at}]
    return {name: [{"media_type": "application/json", **it} if "body" in it else it for it in all_of]
            for name, all_of in made.items()}
