"""Previews as a browser has them: entered once, a host of their own, and nothing of the API."""

import json
import subprocess
import unittest
import urllib.request

from chromium import Chromium
from server import TARGET, Server

# Two servers: one is the preview, the other is next to it. They say what they were sent, and set cookies for everybody.
INSIDE = """
import http.server, json, threading
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        told = json.dumps(dict(self.headers)).encode()
        page = b"<title>inside</title><p>served from a sandbox</p>"
        body = told if self.path == "/headers" else page
        self.send_response(200)
        self.send_header("Content-Type", "text/plain" if self.path == "/headers" else "text/html")
        self.send_header("Set-Cookie", "own=1")
        self.send_header("Set-Cookie", "wide=1; Domain=localhost")
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
for port in (8000, 8001):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Page)
    threading.Thread(target=server.serve_forever).start()
"""
LISTENS = "until grep -q :1F40 /proc/net/tcp && grep -q :1F41 /proc/net/tcp; do :; done"


class PreviewsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server().start()
        cls.addClassCleanup(cls.server.stop)
        cls.ringfence("create", "--image", "host", "--name", "demo")
        cls.addClassCleanup(cls.ringfence, "rm", "demo")
        cls.ringfence("exec", "demo", "--detach", "--", "python3", "-c", INSIDE)
        cls.ringfence("exec", "demo", "--", "sh", "-c", LISTENS)
        cls.minted = json.loads(cls.ringfence("token", "mint", "--sandbox", "demo", "--json"))
        cls.key = (cls.server.path / "data/admin.key").read_text().strip()
        # The name of the API's host that previews are below: as near to them as it gets.
        cls.main = cls.server.url.replace("127.0.0.1", "localhost")
        cls.browser = Chromium()
        cls.addClassCleanup(cls.browser.close)

    @classmethod
    def ringfence(cls, *arguments):
        place = ["--url", cls.server.url, "--data", cls.server.path / "data"]
        # Its flags stand before what is run in the sandbox.
        cut = arguments.index("--") if "--" in arguments else len(arguments)
        command = [TARGET / "debug/ringfence", *arguments[:cut], *place, *arguments[cut:]]
        return subprocess.run(command, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout

    def link(self):
        """Returns a link to the preview, and the origin that it is on."""
        headers = {"Authorization": "Bearer " + self.minted["token"], "Content-Type": "application/json"}
        url = self.minted["http_base_url"] + "/ports/8000/preview"
        with urllib.request.urlopen(urllib.request.Request(url, b"{}", headers)) as answer:
            link = json.load(answer)["url"]
        return link, link.partition("/.well-known/")[0]

    def enter(self):
        visitor = self.browser.visitor()
        link, origin = self.link()
        shown = visitor.open(link)
        self.assertEqual((shown["url"], shown["status"], shown["title"]), (origin + "/", 200, "inside"))
        return visitor, link, origin

    def test_a_page_of_the_sandbox_is_seen_by_who_opens_the_link_first(self):
        visitor, link, origin = self.enter()
        self.assertIn("served from a sandbox", visitor.open(origin + "/")["text"])
        other = self.browser.visitor()
        self.assertEqual(other.open(link)["status"], 401)
        self.assertEqual(other.open(origin + "/")["status"], 401)
        # The other port is another host, where nothing lets in.
        self.assertEqual(visitor.open(origin.replace("8000--", "8001--") + "/")["status"], 401)

    def test_cookies_stay_on_the_host_of_their_port_and_ours_is_not_shown_to_it(self):
        visitor, _, origin = self.enter()
        host = origin.removeprefix("http://").partition(":")[0]
        cookies = {cookie["name"]: cookie for cookie in visitor.cookies()}
        self.assertEqual({cookie["domain"] for cookie in cookies.values()}, {host})
        self.assertTrue({"own", "wide"} < cookies.keys(), cookies.keys())
        ours, = (cookie for name, cookie in cookies.items() if name not in ("own", "wide"))
        self.assertEqual((ours["path"], ours["httpOnly"], ours["sameSite"]), ("/", True, "Lax"))
        sent = visitor.evaluate("fetch('/headers').then(answer => answer.json())")
        sent = {name.lower(): value for name, value in sent.items()}
        self.assertEqual(sorted(sent["cookie"].split("; ")), ["own=1", "wide=1"])
        self.assertNotIn(ours["name"], visitor.evaluate("document.cookie"))

    def test_a_hostile_page_reaches_nothing_of_the_api_with_what_its_visitor_has(self):
        visitor, _, _ = self.enter()
        # As if somebody had left all there is with the browser, for the API's own host.
        for name in ("Authorization", "X-Api-Key", "token", "session"):
            visitor.put_cookie(name=name, value=self.key, domain="localhost", path="/")
        keys = self.ringfence("key", "list")
        sandbox = self.minted["sandbox_id"]
        routes = ["/healthz", "/v1/admin/keys", "/v2/sandboxes/boxes", f"/dp/{sandbox}/v1/access",
                  f"/dp/{sandbox}/files/workspace", f"/dp/{sandbox}/ports/8000/"]
        for main in (self.main, self.server.url):
            for route in routes:
                with self.subTest(main + route):
                    told = visitor.evaluate(f"""fetch({json.dumps(main + route)}, {{credentials: 'include'}})
                        .then(answer => 'answered ' + answer.status, error => error.name)""")
                    self.assertEqual(told, "TypeError")
            # Orders without an answer go out, and are not carried out.
            told = visitor.evaluate(f"""fetch({json.dumps(main + '/v1/admin/keys')}, {{method: 'POST', mode: 'no-cors',
                credentials: 'include', headers: {{'Content-Type': 'text/plain'}}, body: '{{"name": "stolen"}}'}})
                .then(answer => answer.type, error => error.name)""")
            self.assertIn(told, ("opaque", "TypeError"))
            for route in ("/ws", f"/dp/{sandbox}/v1/shell/ws", f"/dp/{sandbox}/ws"):
                with self.subTest(main + route):
                    url = json.dumps(main.replace("http", "ws", 1) + route)
                    told = visitor.evaluate(f"""new Promise(resolve => {{
                        const socket = new WebSocket({url});
                        socket.onopen = () => resolve('open');
                        socket.onerror = () => resolve('error');
                    }})""")
                    self.assertEqual(told, "error")
        self.assertEqual(self.ringfence("key", "list"), keys)

    def test_nothing_that_a_preview_leaves_behind_lets_in_at_the_api(self):
        visitor, _, _ = self.enter()
        visitor.evaluate("document.cookie = 'tossed=1; domain=localhost; path=/'")
        ours, = (cookie for cookie in visitor.cookies() if cookie["name"] not in ("own", "wide", "tossed"))
        visitor.put_cookie(name=ours["name"], value=ours["value"], domain="localhost", path="/")
        sandbox = self.minted["sandbox_id"]
        for path in (f"/dp/{sandbox}/ports/8000/", f"/dp/{sandbox}/v1/access", "/v1/admin/keys"):
            with self.subTest(path):
                self.assertEqual(visitor.open(self.main + path)["status"], 401)
        left = {cookie["name"] for cookie in visitor.cookies() if cookie["domain"].strip(".") == "localhost"}
        self.assertLessEqual(left, {ours["name"], "tossed"})


if __name__ == "__main__":
    unittest.main()
