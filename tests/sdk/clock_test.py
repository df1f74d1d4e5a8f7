"""F31: the clock of the machine is set ahead and back while the server runs. Sessions go by what has passed."""

import glob
import json
import os
import unittest
import unittest.mock
import urllib.error
import urllib.request

import server as servers

LIBRARY = glob.glob("/usr/lib/*/faketime/libfaketime.so.1")

# The lease is the shortest that there can be, so that an hour is many of them.
SETTINGS = """
[sessions]
image = "host"
lease = "1m"
hard_ttl = "10m"
"""


class Clock(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = servers.Server(SETTINGS)
        cls.time = cls.server.path / "time"
        cls.set("+0")
        faked = {"LD_PRELOAD": LIBRARY[0], "FAKETIME_TIMESTAMP_FILE": str(cls.time), "FAKETIME_NO_CACHE": "1",
                 "FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_DONT_RESET": "1"}
        with unittest.mock.patch.dict(os.environ, faked):
            cls.server.start()
        cls.key = (cls.server.path / "data/admin.key").read_text().strip()

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def tearDown(self):
        self.set("+0")
        for thread in ("thr_1", "thr_clock"):
            self.ask("DELETE", f"/threads/{thread}/sandbox")

    @classmethod
    def set(cls, offset):
        """Sets the clock, by so many seconds from what it is outside."""
        new = cls.time.with_suffix(".new")
        new.write_text(offset + "\n")
        new.chmod(0o644)
        new.rename(cls.time)

    def ask(self, method, path, body=None, token=None):
        headers = {"Authorization": f"Bearer {token}"} if token else {"X-Api-Key": self.key}
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            headers["Content-Type"] = "application/json"
        request = urllib.request.Request(self.server.url + path, data=data, headers=headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def end_of_token(self):
        """Returns until when a new token is good, by the clock of the server."""
        status, answer = self.ask("POST", "/v1/sandbox/sessions", {"thread_id": "thr_clock", "mode": "ensure"})
        self.assertEqual(status, 200, answer)
        return answer["expires_at"]

    def test_an_hour_ahead_or_back_ends_nothing_and_a_new_token_is_good(self):
        wanted = {"thread_id": "thr_1", "mode": "ensure"}
        status, first = self.ask("POST", "/v1/sandbox/sessions", wanted)
        self.assertEqual(status, 200, first)
        before = self.end_of_token()
        session = f"/v1/sandbox/sessions/{first['session_id']}"
        run = {"command": ["/bin/echo", "here"]}
        for offset in ["+3600", "+0", "-3600", "+0", "+315360000", "+0"]:
            with self.subTest(offset=offset):
                self.set(offset)
                if offset == "+3600":
                    self.assertGreater(self.end_of_token(), before, "the clock was not set")
                status, beaten = self.ask("POST", session + "/heartbeat")
                self.assertEqual(status, 200, beaten)
                status, shown = self.ask("GET", session)
                self.assertEqual((status, shown["sandbox"]["id"]), (200, first["sandbox"]["id"]), shown)
                status, again = self.ask("POST", "/v1/sandbox/sessions", wanted)
                self.assertEqual((status, again["session_id"]), (200, first["session_id"]), again)
                path = f"/dp/{first['sandbox']['id']}/v1/exec"
                status, ran = self.ask("POST", path, run, token=again["token"])
                self.assertEqual((status, ran["stdout"], ran["exit_code"]), (200, "here\n", 0), ran)


if __name__ == "__main__":
    unittest.main()
