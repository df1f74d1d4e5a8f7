"""The tunnel of langsmith, unchanged, to servers in a sandbox."""

import asyncio
import hashlib
import json
import logging.handlers
import queue
import socket
import unittest
import urllib.request

from agents_sandbox import AgentsSandboxClient
from langsmith.sandbox._tunnel import Tunnel

from server import Server

ECHO = """
import socket, threading
listener = socket.create_server(("127.0.0.1", 9000), backlog=512)
def echo(client):
    for heard in iter(lambda: client.recv(65536), b""):
        client.sendall(heard)
    client.close()
while True:
    threading.Thread(target=echo, args=(listener.accept()[0],)).start()
"""
LISTENS = "until grep -q :1F40 /proc/net/tcp && grep -q :2328 /proc/net/tcp; do :; done"


async def prepare():
    """Makes a sandbox in which two servers listen; returns its name."""
    client = AgentsSandboxClient()
    sandbox = await client.create_sandbox(image="host")
    name = sandbox.sandbox_id
    await client.create_exec(name, ["python3", "-m", "http.server", "8000", "--directory", "/usr/bin"])
    await client.create_exec(name, ["python3", "-c", ECHO])
    await client.run(name, ["sh", "-c", LISTENS])
    await client.aclose()
    return name


async def remove(name):
    """Sandboxes outlive the server, and nobody is to find this one."""
    async with AgentsSandboxClient() as client:
        await client.delete_sandbox(name)


class TunnelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server().start()
        cls.addClassCleanup(cls.server.stop)
        name = asyncio.run(prepare())
        cls.addClassCleanup(lambda: asyncio.run(remove(name)))
        cls.key = (cls.server.path / "data/admin.key").read_text().strip()
        body = json.dumps({"sandbox": name, "scope": "ports"}).encode()
        headers = {"X-Api-Key": cls.key, "Content-Type": "application/json"}
        request = urllib.request.Request(cls.server.url + "/v1/admin/tokens", body, headers)
        with urllib.request.urlopen(request) as answer:
            minted = json.load(answer)
        cls.token, cls.dataplane = minted["token"], minted["dataplane_url"]

    def tunnel(self, remote_port, credential=None):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            free = taken.getsockname()[1]
        tunnel = Tunnel(self.dataplane, credential or self.key, remote_port, local_port=free)
        tunnel._start()
        self.addCleanup(tunnel.close)
        return tunnel.local_port

    def test_a_file_comes_through_whole_with_a_key_and_with_a_token(self):
        with open("/usr/bin/python3", "rb") as file:
            expected = hashlib.sha256(file.read()).digest()
        for credential in (self.key, self.token):
            port = self.tunnel(8000, credential)
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/python3") as answer:
                self.assertEqual(hashlib.sha256(answer.read()).digest(), expected)

    def test_many_connections_at_once_carry_more_than_a_window_in_both_directions(self):
        port = self.tunnel(9000)
        sent = bytes(range(256)) * 4096

        async def echoed(number):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            own = bytes([number]) + sent
            writer.write(own)
            heard = await asyncio.wait_for(reader.readexactly(len(own)), 60)
            writer.close()
            return heard == own

        async def together():
            return await asyncio.gather(*(echoed(number) for number in range(16)))

        self.assertEqual(asyncio.run(together()), [True] * 16)

    def test_where_nobody_listens_the_connection_ends_and_the_tunnel_goes_on(self):
        told = queue.Queue()
        handler = logging.handlers.QueueHandler(told)
        logger = logging.getLogger("langsmith.sandbox._tunnel")
        logger.addHandler(handler)
        self.addCleanup(logger.removeHandler, handler)
        port = self.tunnel(7)
        for _ in range(2):
            with socket.create_connection(("127.0.0.1", port), 20) as connection:
                self.assertEqual(connection.recv(1), b"")
            # The client says so only after it has closed the connection.
            self.assertIn("nothing listening on port 7", told.get(timeout=60).getMessage())


if __name__ == "__main__":
    unittest.main()
