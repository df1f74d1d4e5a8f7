"""The control plane of langsmith's sandboxes, driven by its SDK, unchanged."""

import asyncio
import json
import socket
import unittest
import urllib.error
import urllib.request

from langsmith import Langsmith
from langsmith.sandbox import SandboxClient
from langsmith.sandbox._exceptions import (
    ResourceCreationError, ResourceNameConflictError, ResourceNotFoundError, SandboxAuthenticationError,
    SandboxClientError, ValidationError,
)

from server import Server

GIB = 2**30
SERVER = "python3 -m http.server 8000 --bind 127.0.0.1 --directory /root"


class LangsmithTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server().start()
        cls.addClassCleanup(lambda: cls.server.stop())
        cls.key = (cls.server.path / "data/admin.key").read_text().strip()

    def setUp(self):
        self.client = self.make("/api/v2/sandboxes")

    def make(self, base, key=None):
        client = SandboxClient(api_endpoint=self.server.url + base, api_key=key or self.key, max_retries=0)
        self.addClassCleanup(client.close)
        return client

    def box(self, **options):
        options.setdefault("snapshot", "host")
        box = self.client.create_sandbox(**options)
        self.addCleanup(self.forget, box.name, box.id)
        return box

    def forget(self, *names):
        for name in names:
            try:
                return self.client.delete_sandbox(name)
            except ResourceNotFoundError:
                pass

    def snapshot(self, name, **options):
        made = self.client.create_snapshot(name, "host", GIB, **options)
        self.addCleanup(self.forget_snapshot, made.id)
        return made

    def forget_snapshot(self, name):
        try:
            self.client.delete_snapshot(name)
        except ResourceNotFoundError:
            pass

    def test_a_sandbox_lives_as_its_client_says(self):
        box = self.box(name="life-box", idle_ttl_seconds=120, delete_after_stop_seconds=3600, vcpus=1,
                       mem_bytes=256 * 2**20, run_config={"work_dir": "/tmp", "env_vars": {"WHO": "me"}})
        self.assertEqual((box.name, box.status, box.idle_ttl_seconds), ("life-box", "ready", 120))
        self.assertEqual((box.delete_after_stop_seconds, box.vcpus), (3600, 1))
        self.assertEqual(box.run_config.work_dir, "/tmp")
        self.assertEqual(box.run("pwd; echo $WHO").stdout, "/tmp\nme\n")
        # Both prefixes are the same.
        self.assertEqual(self.make("/v2/sandboxes").get_sandbox("life-box").id, box.id)
        self.assertIn("life-box", [it.name for it in self.client.list_sandboxes()])
        self.assertEqual(self.client.get_sandbox_status("life-box").status, "ready")
        box.write("/tmp/kept", b"kept")
        self.client.stop_sandbox("life-box")
        started = self.client.start_sandbox("life-box")
        self.assertEqual((started.status, started.read("/tmp/kept")), ("ready", b"kept"))
        changed = self.client.update_sandbox("life-box", new_name="new-life", idle_ttl_seconds=0,
                                             delete_after_stop_seconds=0, run_config={"env_vars": {"WHO": "you"}})
        self.assertEqual((changed.id, changed.name), (box.id, "new-life"))
        self.assertEqual((changed.idle_ttl_seconds, changed.delete_after_stop_seconds), (0, 0))
        self.assertEqual(changed.run("echo $WHO").stdout, "you\n")
        other = self.box(name="other-box")
        for taken in ("new-life", "life-box"):
            with self.assertRaises(ResourceNameConflictError):
                self.client.update_sandbox(other.name, new_name=taken)
        self.client.delete_sandbox("new-life")
        with self.assertRaises(ResourceNotFoundError):
            self.client.get_sandbox("new-life")

    def test_one_that_is_not_waited_for_is_waited_for_later(self):
        box = self.box(wait_for_ready=False)
        self.assertIn(box.status, ("provisioning", "ready"))
        self.assertEqual(self.client.wait_for_sandbox(box.name).status, "ready")
        with self.client.sandbox(snapshot="host") as passing:
            self.assertEqual(passing.run("echo hi").stdout, "hi\n")
        with self.assertRaises(ResourceNotFoundError):
            self.client.get_sandbox(passing.name)

    def test_refusals_are_what_the_client_tells_apart(self):
        with self.assertRaises(ValidationError) as refused:
            self.client.create_sandbox(snapshot="host", name="a b")
        self.assertEqual(refused.exception.field, "name")
        for unsupported in ({"persistent": False}, {"proxy_config": {"access_control": {"allow_list": ["a.example"]}}},
                            {"access_delegation": {"mode": "INHERIT"}}):
            with self.assertRaises(ResourceCreationError) as refused:
                self.client.create_sandbox(snapshot="host", **unsupported)
            self.assertEqual(refused.exception.error_type, "SandboxConfig", unsupported)
        with self.assertRaises(ResourceCreationError) as refused:
            self.client.create_sandbox(snapshot="127.0.0.1:1/nothing:1")
        self.assertEqual(refused.exception.error_type, "ImagePull")
        with self.assertRaises(ResourceNotFoundError):
            self.client.stop_sandbox("nobodys-box")
        with self.assertRaises(SandboxAuthenticationError):
            self.make("/v2/sandboxes", "rf_wrong").list_sandboxes()
        box = self.box()
        with self.assertRaises(SandboxClientError) as refused:
            box.capture_snapshot("captured")
        self.assertIn("not of sandboxes yet", str(refused.exception))
        with self.assertRaises(ValidationError):
            self.client.service(box.name, 8000, access="workspace")

    def test_a_service_is_reached_with_its_token_and_in_a_browser(self):
        box = self.box()
        box.write("hello", b"from inside")
        box.run(SERVER, wait=False)
        box.run("until grep -q :1F40 /proc/net/tcp; do :; done", timeout=30)
        service = self.client.service(box.name, 8000, expires_in_seconds=300)
        answer = service.get("/hello")
        self.assertEqual((answer.status_code, answer.text), (200, "from inside"))
        self.assertEqual(box.service(8000).get("/nothing").status_code, 404)
        # Browsers are led to a host of the port's own, which is this machine to them.
        host, path = service.browser_url.removeprefix("http://").split("/", 1)
        with socket.create_connection(self.address()) as browser:
            browser.sendall(f"GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            self.assertIn(b" 303 ", browser.makefile("rb").readline())

    def address(self):
        host, port = self.server.url.removeprefix("http://").split(":")
        return host, int(port)

    def test_a_file_is_downloaded_by_its_url_alone(self):
        box = self.box()
        box.write("page.html", b"0123456789")
        link = self.client.generate_download_url(box.name, "page.html", content_type="text/plain",
                                                 content_disposition="inline")
        self.assertIsNone(link.expires_at)
        with urllib.request.urlopen(link.download_url) as answer:
            self.assertEqual(answer.read(), b"0123456789")
            self.assertEqual(answer.headers["Content-Type"], "text/plain")
        part = urllib.request.Request(link.download_url, headers={"Range": "bytes=2-4"})
        with urllib.request.urlopen(part) as answer:
            self.assertEqual((answer.status, answer.read()), (206, b"234"))
        self.assertIsNotNone(box.generate_download_url("page.html", expires_in_seconds=60).expires_at)
        with self.assertRaises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(link.download_url + "x")
        self.assertEqual(refused.exception.code, 401)

    def test_snapshots_are_made_found_used_and_deleted(self):
        made = self.snapshot("mine", run_config={"work_dir": "/tmp", "env_vars": {"A": "snapshot"}})
        self.assertEqual((made.status, made.tags, made.fs_capacity_bytes), ("ready", ["latest"], GIB))
        tagged = self.snapshot("mine", tag="v1")
        self.assertEqual(self.client.get_snapshot("mine").id, made.id)
        self.assertEqual(self.client.get_snapshot("mine:v1").id, tagged.id)
        tags = {it.tag: it.snapshot_id for it in self.client.list_snapshot_tags("mine")}
        self.assertEqual(tags, {"latest": made.id, "v1": tagged.id})
        self.assertEqual(len(self.client.list_snapshots(name_contains="MINE")), 2)
        self.assertEqual(len(self.client.list_snapshots(limit=1, offset=1)), 1)
        for how in ({"snapshot_id": made.id}, {"snapshot": "mine"}, {"snapshot_name": "mine:latest"}):
            box = self.box(**{"snapshot": None, **how})
            self.assertEqual((box.snapshot_id, box.run("pwd; echo $A").stdout), (made.id, "/tmp\nsnapshot\n"))
        self.client.delete_snapshot(tagged.id)
        with self.assertRaises(ResourceNotFoundError):
            self.client.get_snapshot("mine:v1")
        with self.assertRaises(ResourceNotFoundError):
            self.client.list_snapshot_tags("nobodys")
        with self.assertRaises(ResourceCreationError) as failed:
            self.client.create_snapshot("gone", "127.0.0.1:1/nothing:1", GIB)
        self.assertIn("127.0.0.1:1", str(failed.exception))
        self.forget_snapshot("gone")

    def test_named_things_are_there_after_a_restart(self):
        made = self.snapshot("lasting")
        box = self.box(snapshot="lasting", name="lasting-box")
        self.client.update_sandbox("lasting-box", new_name="renamed-box", idle_ttl_seconds=0)
        self.server.kill()
        self.server.start()
        self.client = self.make("/v2/sandboxes")
        self.assertEqual(self.client.get_snapshot("lasting").id, made.id)
        shown = self.client.wait_for_sandbox("renamed-box")
        self.assertEqual((shown.id, shown.snapshot_id, shown.idle_ttl_seconds), (box.id, made.id, 0))
        self.assertEqual(shown.run("echo here").stdout, "here\n")

    def test_the_generated_client_lists_with_filters(self):
        rest = Langsmith(api_key=self.key, base_url=self.server.url)
        self.addCleanup(rest.close)
        for name in ("list-box-1", "list-box-2"):
            made = rest.sandboxes.boxes.create(name=name, snapshot="host", labels={"suite": "list"})
            self.addCleanup(self.forget, name)
            self.assertEqual(made.labels, {"suite": "list"})
        listed = list(rest.sandboxes.boxes.list(label=["suite=list"], sort_by="name", sort_order="asc", page_size=1))
        self.assertEqual([box.name for box in listed], ["list-box-1", "list-box-2"])
        self.assertEqual(list(rest.sandboxes.boxes.list(label=["suite=list"], status="stopped")), [])
        snapshot = rest.sandboxes.snapshots.create(name="rest", docker_image="host", fs_capacity_bytes=GIB)
        self.addCleanup(self.forget_snapshot, snapshot.id)
        self.assertEqual([it.id for it in rest.sandboxes.snapshots.list(name_contains="rest")], [snapshot.id])

    def test_old_clients_have_templates(self):
        def ask(method, path, body=None):
            data = None if body is None else json.dumps(body).encode()
            headers = {"X-Api-Key": self.key, "Content-Type": "application/json"}
            url = self.server.url + "/v2/sandboxes" + path
            with urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method)) as answer:
                text = answer.read()
            return json.loads(text) if text else None

        made = ask("POST", "/templates", {"name": "python", "image": "host", "cpu": "500m", "memory": "256Mi"})
        self.assertEqual(made["resources"], {"cpu": "500m", "memory": "256Mi"})
        self.assertIn("python", [it["name"] for it in ask("GET", "/templates")["templates"]])
        box = ask("POST", "/boxes", {"template_name": "python", "name": "template-box"})
        self.addCleanup(self.forget, "template-box")
        self.assertEqual(box["cpu_millicores"], 500)
        ask("DELETE", "/templates/python")
        self.assertEqual((ask("GET", "/volumes"), ask("GET", "/pools")), ({"volumes": []}, {"pools": []}))

    def test_the_asynchronous_client_does_the_same(self):
        async def live():
            async with self.client.to_async() as client:
                snapshot = await client.create_snapshot("async", "host", GIB)
                box = await client.create_sandbox(snapshot="async", name="async-box")
                self.assertEqual((await box.run("echo hi")).stdout, "hi\n")
                self.assertEqual((await client.update_sandbox("async-box", new_name="async-two")).id, box.id)
                await client.stop_sandbox("async-two")
                self.assertEqual((await client.start_sandbox("async-two")).status, "ready")
                link = await client.generate_download_url("async-two", "/etc/hostname")
                self.assertTrue(link.download_url.endswith(link.token))
                self.assertTrue((await client.service("async-two", 8000)).service_url.endswith("/ports/8000"))
                self.assertIn("async-two", [it.name for it in await client.list_sandboxes()])
                await client.delete_sandbox("async-two")
                await client.delete_snapshot(snapshot.id)

        asyncio.run(live())


if __name__ == "__main__":
    unittest.main()
