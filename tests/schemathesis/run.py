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
    try:
        sys.exit(look(server))
    finally:
        server.stop()


def look(server):
    """Lets schemathesis ask; returns how it ended. No sandbox is left."""
    key = (server.path / "data/admin.key").read_text().strip()
    try:
        # What it keeps for the next time goes with the server's folder.
        return subprocess.run(command(server), env=environment(server, key), cwd=server.path).returncode
    finally:
        for box in ask(server, key, "GET", "/v2/sandboxes/boxes")["sandboxes"]:
            ask(server, key, "DELETE", "/v2/sandboxes/boxes/" + box["name"])


def command(server):
    program = pathlib.Path(sys.executable).absolute().parent / "st"
    return [program, "--config-file", HERE / "schemathesis.toml", "run", server.url + "/openapi.json", *sys.argv[1:]]


def environment(server, key):
    """Makes what is asked about; returns it as the configuration names it."""
    session, other = (
        ask(server, key, "POST", "/v1/sandbox/sessions", {"thread_id": thread, "mode": "ensure", "image": "host"})
        for thread in ("used", "ended"))
    # By their ids: a name can be changed.
    box, other_box = (
        ask(server, key, "POST", "/v2/sandboxes/boxes", {"snapshot": "host"})["id"] for _ in range(2))
    for name in ("kept", "ended", "ended-template"):
        ask(server, key, "POST", "/v2/sandboxes/snapshots", {"name": name, "docker_image": "host"})
    link = "/v2/sandboxes/boxes/" + session["sandbox"]["id"] + "/download-url"
    return {
        **os.environ,
        "RINGFENCE_KEY": key,
        "RINGFENCE_SANDBOX": session["sandbox"]["id"],
        "RINGFENCE_SESSION": session["session_id"],
        "RINGFENCE_TOKEN": session["token"],
        "RINGFENCE_LINK": ask(server, key, "POST", link, {"path": "/etc/hosts"})["token"],
        "RINGFENCE_BOX": box,
        "RINGFENCE_OTHER_BOX": other_box,
        "RINGFENCE_SPARE": ask(server, key, "POST", "/v1/admin/keys", {"name": "spare"})["key"]["id"],
        "RINGFENCE_OTHER_SANDBOX": other["sandbox"]["id"],
        "RINGFENCE_OTHER_SESSION": other["session_id"],
    }


if __name__ == "__main__":
    main()
