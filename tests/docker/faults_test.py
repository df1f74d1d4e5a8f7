"""An engine that is slow, busy, talks nonsense, or says that it has done what it has not: nobody is misled, and other
sandboxes go on."""

import http.server
import json
import socketserver
import threading
import time

from containers_test import Case, settings
from server import Server


class Fake(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """An engine that answers as it is told to."""

    daemon_threads = True
    mode = "silent"
    asked = 0


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, body, **headers):
        self.send_response(status)
        for name, value in {"Content-Length": len(body), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def handle_any(self):
        self.server.asked += 1
        mode = self.server.mode
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if mode == "silent":
            threading.Event().wait(60)
        elif mode == "closed":
            self.close_connection = True
        elif mode == "garbage":
            self.wfile.write(b"\x00\xffnothing like HTTP\r\n\r\n")
        elif mode == "busy":
            self.answer(429, b'{"message": "slow down"}')
        elif self.path.endswith("/_ping"):
            self.answer(200, b"OK", Api_Version="1.41")
        elif mode == "nonsense":
            self.answer(200, b"]nonsense[")
        elif "/images/" in self.path:
            self.answer(200, json.dumps({"Id": "sha256:" + "0" * 64, "Config": {}}).encode())
        elif self.path.split("?")[0].endswith("/containers/json"):
            self.answer(200, b"[]")
        elif "/containers/create" in self.path:
            self.answer(201, b'{"Id": "x", "Warnings": []}')
        elif self.path.endswith("/stop?t=0") or self.command == "DELETE":
            self.answer(404, b'{"message": "No such container"}')
        else:
            self.answer(204, b"")

    do_GET = do_POST = do_DELETE = handle_any

    def address_string(self):
        return "engine"

    def log_message(self, *_):
        pass


class FaultsTest(Case):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        path = cls.server.path / "engine.sock"
        cls.fake = Fake(str(path), Handler)
        cls.addClassCleanup(cls.fake.server_close)
        threading.Thread(target=cls.fake.serve_forever, daemon=True).start()
        cls.addClassCleanup(cls.fake.shutdown)
        cls.server.config.write_text(settings(cls.server.path, socket=path))
        cls.server.start()
        cls.addClassCleanup(cls.server.stop)
        cls.key = (cls.server.path / "data/admin.key").read_text().strip()
        cls.seen = []

    def test_an_engine_that_does_not_answer_as_it_should_is_said_to_be_unavailable_in_time(self):
        for mode in ("silent", "closed", "garbage", "busy", "nonsense"):
            with self.subTest(mode):
                # What it did before is forgotten after a second.
                self.fake.mode = "well"
                well = f"{mode}-well"
                self.wait(lambda: self.ensure(thread_id=well, image="x", wait_seconds=0).status == 423)
                self.fake.mode = mode
                begin = time.monotonic()
                answer = self.ensure(thread_id=mode, image="x")
                self.assertEqual(answer.code, (503, "PROVIDER_UNAVAILABLE"), answer.body)
                self.assertLess(time.monotonic() - begin, 45)
                self.assertEqual(answer.headers["Retry-After"], "1")
                self.assertIn("Docker engine", answer.json["error"]["message"])
        self.fake.mode = "silent"
        local = self.request("POST", "/v1/sandbox/sessions", {"thread_id": "local-two", "mode": "ensure"})
        self.assertEqual((local.status, local.json["sandbox"]["provider"]), (200, "local"), local.body)
        self.addCleanup(self.destroy, "local-two", local.json["sandbox"]["id"])
        self.assertEqual(self.output(local.json, "echo here"), "here\n")

    def test_those_who_come_while_it_is_down_do_not_all_ask_it(self):
        self.fake.mode = "closed"
        self.wait(lambda: self.ensure(image="x").status == 503)
        before = self.fake.asked
        answers = []
        ask = lambda: answers.append(self.ensure(image="x").status)
        threads = [threading.Thread(target=ask) for _ in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(set(answers), {503})
        self.assertLess(self.fake.asked - before, 20)

    def test_an_engine_that_only_says_that_it_has_started_something_is_not_believed(self):
        self.fake.mode = "well"
        self.wait(lambda: self.ensure(thread_id="well-again", image="x", wait_seconds=0).status == 423)
        answer = self.ensure(image="x")
        self.assertEqual(answer.code, (503, "PROVIDER_UNAVAILABLE"), answer.body)
        self.assertIn("not ready within", answer.json["error"]["message"])
