"""Starts a server, gives schemathesis what it needs to get past the door, and lets it ask."""

import json
import os
import pathlib
import subprocess
import sys

import prepared
from prepared import ask
from server import Server

HERE = pathlib.Path(__file__).absolute().parent


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
    used = prepared.session(server, key, "used")
    serving = prepared.serve(server, used["sandbox"]["id"])
    try:
        # What it keeps for the next time goes with the server's folder.
        ended = subprocess.run(command(server), env=environment(server, key, used), cwd=server.path)
        return max(ended.returncode, judge(server, key))
    finally:
        serving.kill()
        serving.communicate()
        for box in ask(server, key, "GET", "/v2/sandboxes/boxes")["sandboxes"]:
            ask(server, key, "DELETE", "/v2/sandboxes/boxes/" + box["name"])


def judge(server, key):
    """Tells how much of the document was answered with success; returns 1 unless it is all that can be."""
    paths = ask(server, key, "GET", "/openapi.json")["paths"]
    operations = {f"{method.upper()} {path}": it for path, methods in paths.items() for method, it in methods.items()}
    # Routes that refuse always, and those that become a WebSocket, which it does not speak.
    can = {name for name, it in operations.items() if not it.get("x-never") and "101" not in it["responses"]}
    # The document itself was read just now; schemathesis does not ask for it again.
    answered = {"GET /openapi.json", *(server.path / "answered").read_text().splitlines()}
    print(f"{len(answered)} of {len(operations)} operations were answered with success; {len(can)} can be")
    for name in sorted(can - answered):
        print(f"never answered with success: {name}")
    return 0 if can <= answered else 1


def command(server):
    program = pathlib.Path(sys.executable).absolute().parent / "st"
    return [program, "--config-file", HERE / "schemathesis.toml", "run", server.url + "/openapi.json", *sys.argv[1:]]


def environment(server, key, used):
    """Makes what is asked about; returns it as the configuration names it."""
    other = prepared.session(server, key, "ended")
    prepared.snapshot(server, key, "kept")
    sandbox = used["sandbox"]["id"]
    link = f"/v2/sandboxes/boxes/{sandbox}/download-url"
    examples = server.path / "examples.json"
    examples.write_text(json.dumps(prepared.examples(server, key, used)))
    return {
        **os.environ,
        "PYTHONPATH": str(HERE),
        "SCHEMATHESIS_HOOKS": "asked",
        "RINGFENCE_EXAMPLES": str(examples),
        "RINGFENCE_ANSWERED": str(server.path / "answered"),
        "RINGFENCE_KEY": key,
        "RINGFENCE_SANDBOX": sandbox,
        "RINGFENCE_SESSION": used["session_id"],
        "RINGFENCE_TOKEN": used["token"],
        "RINGFENCE_LINK": ask(server, key, "POST", link, {"path": "/etc/hosts"})["token"],
        "RINGFENCE_BOX": prepared.box(server, key),
        "RINGFENCE_SPARE": ask(server, key, "POST", "/v1/admin/keys", {"name": "spare"})["key"]["id"],
        "RINGFENCE_OTHER_SANDBOX": other["sandbox"]["id"],
        "RINGFENCE_OTHER_SESSION": other["session_id"],
    }


if __name__ == "__main__":
    main()
