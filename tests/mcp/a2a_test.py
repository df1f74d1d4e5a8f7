"""A session as a2a-sdk reads it."""

import json
import unittest
import urllib.request

from a2a.types import Task, TaskState
from google.protobuf import json_format

from cleaning import remove_all
from server import Server


class Mapping(unittest.TestCase):
    def test_a_session_is_a_task_whose_context_is_the_sandbox(self):
        server = Server().start()
        key = (server.path / "data/admin.key").read_text().strip()

        def ask(path, body=None, credential=key):
            headers = {"Authorization": f"Bearer {credential}", "Content-Type": "application/json"}
            url = path if path.startswith("http") else server.url + path
            data = json.dumps(body).encode() if body is not None else None
            with urllib.request.urlopen(urllib.request.Request(url, data, headers)) as answer:
                return json.load(answer)

        session = ask("/v1/sandbox/sessions", {"thread_id": "thr_1", "mode": "ensure"})
        shown = ask(f"/v1/sandbox/sessions/{session['session_id']}/a2a")
        # An unknown field, or one of another type, is an error.
        task = json_format.ParseDict(shown, Task())
        self.assertEqual((task.id, task.context_id), (session["session_id"], session["sandbox"]["id"]))
        self.assertEqual(task.status.state, TaskState.TASK_STATE_WORKING)
        environment = json_format.MessageToDict(task.metadata)["urn:ringfence:environment:1"]
        self.assertEqual(environment["dataplane"], session["dataplane"])
        self.assertEqual([artifact.name for artifact in task.artifacts], ["files", "exec", "shell"])
        # Nothing in it opens anything; whoever has a token of his own uses the URLs.
        self.assertNotIn("token", json.dumps(shown))
        token = ask(environment["refresh_url"], {})["token"]
        files, exec, _ = task.artifacts
        ran = ask(exec.parts[0].url, {"command": "echo kept > /workspace/file"}, token)
        self.assertEqual(ran["exit_code"], 0)
        listed = ask(files.parts[1].url + "?path=/workspace", credential=token)
        self.assertEqual([entry["name"] for entry in listed["entries"]], ["file"])
        remove_all(server)
        server.stop()


if __name__ == "__main__":
    unittest.main()
