"""Starts a server, gives schemathesis what it needs to get past the door, and lets it ask."""

import json
import os
import pathlib
import subprocess
import sys
import urllib.request

from server import Server

HERE = pathlib.Path(__file__).absolute().parent


def ask(server, key, method, path, body=None):
    """Asks with a key; returns what is answered."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"X-Api-Key": key, "Content-Type": "application/json"}
    request = urllib.request.Request(server.url + path, data=data, headers=headers, method=method)
    with urllib.request.urlopen(request) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def main():
    # No registry is asked for what somebody makes up.
    os.environ["RINGFENCE_IMAGES__ALLOW"] = '["host"]'
    server = Server().start()
    key = (server.path / "data/admin.key").read_text().strip()
    session, other = (
        ask(server, key, "POST", "/v1/sandbox/sessions", {"thread_id": thread, "mode": "ensure", "image": "host"})
        for thread in ("used", "ended"))
    environment = {
        **os.environ,
        "RINGFENCE_KEY": key,
        "RINGFENCE_SANDBOX": session["sandbox"]["id"],
        "RINGFENCE_SESSION": session["session_id"],
        "RINGFENCE_TOKEN": session["token"],
        "RINGFENCE_SPARE": ask(server, key, "POST", "/v1/admin/keys", {"name": "spare"})["key"]["id"],
        "RINGFENCE_OTHER_SANDBOX": other["sandbox"]["id"],
        "RINGFENCE_OTHER_SESSION": other["session_id"],
    }
    command = [pathlib.Path(sys.executable).absolute().parent / "st", "--config-file", HERE / "schemathesis.toml", "run",
               server.url + "/openapi.json", *sys.argv[1:]]
    # What it keeps for the next time goes with the server's folder.
    status = subprocess.run(command, env=environment, cwd=server.path).returncode
    for box in ask(server, key, "GET", "/v2/sandboxes/boxes")["sandboxes"]:
        ask(server, key, "DELETE", "/v2/sandboxes/boxes/" + box["name"])
    server.stop()
    sys.exit(status)


if __name__ == "__main__":
    main()
