#!/usr/bin/env python3
"""Runs executions in a row and then many at once, and looks whether anything is left of them.

    stress.py RINGFENCE [IN_A_ROW [AT_ONCE [CONNECTIONS]]]

Starts a server of its own. Ends with 0 if every execution completed with the output it must have, and the server has
as many processes, descriptors and cgroups afterwards as before, and about as much memory.
"""

import base64
import json
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

MEMORY_SLACK_KIB = 32 * 1024  # the allocator keeps some of what a thousand at once needed
MOST_NETWORKS = 2 * 16 + 8  # kept for two zygotes, of which one makes way for the other, and those of the pool


class Connection:
    """A WebSocket, as little of it as is needed."""

    def __init__(self, port, key):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        nonce = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(
            f"GET /ws HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {nonce}\r\nSec-WebSocket-Version: 13\r\nAuthorization: Bearer {key}\r\n\r\n".encode()
        )
        self.buffer = b""
        while b"\r\n\r\n" not in self.buffer:
            self.buffer += self.socket.recv(4096)
        head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        assert b" 101 " in head, head
        self.output, self.running, self.failed, self.done = {}, 0, [], 0

    def execute(self, name):
        frame = {
            "v": 1, "type": "execute", "id": name, "ts": "2026-01-01T00:00:00.000Z", "language": "python",
            "code": f"print('{name}')", "limits": {"timeout_ms": 60000, "memory_mb": 128},
        }
        text = json.dumps(frame).encode()
        length = bytes([0x80 | len(text)]) if len(text) < 126 else b"\xfe" + struct.pack(">H", len(text))
        self.socket.sendall(b"\x81" + length + b"\0\0\0\0" + text)
        self.output[name] = ""
        self.running += 1

    def frames(self):
        """Yields the frames that are there."""
        self.buffer += self.socket.recv(1 << 16) or sys.exit("the server closed the connection")
        while len(self.buffer) >= 2:
            length, at = self.buffer[1] & 0x7F, 2
            if length == 126:
                length, at = struct.unpack(">H", self.buffer[2:4])[0], 4
            elif length == 127:
                length, at = struct.unpack(">Q", self.buffer[2:10])[0], 10
            if len(self.buffer) < at + length:
                return
            kind, text, self.buffer = self.buffer[0] & 15, self.buffer[at:at + length], self.buffer[at + length:]
            if kind == 1:
                yield json.loads(text)

    def hear(self):
        for frame in self.frames():
            name = frame.get("id")
            if frame["type"] == "stdout":
                self.output[name] += frame["data"]
            elif frame["type"] == "error":
                self.failed.append(frame)
                self.running -= 1
            elif frame["type"] == "result":
                self.running -= 1
                self.done += 1
                if frame["exit_code"] != 0 or self.output.pop(name) != f"{name}\n":
                    self.failed.append(frame)


def listing(path):
    try:
        return os.listdir(path)
    except FileNotFoundError:
        return []


def tree(pid):
    """The process, its children, theirs, and so on."""
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [pid] + [p for child in file.read().split() for p in tree(int(child))]


def traces(spawner):
    """What could be left behind."""
    processes = tree(spawner)
    daemon = next(p for p in processes if p != spawner and "--as-daemon" in open(f"/proc/{p}/cmdline").read())
    own = f"ringfence-{spawner}"
    groups = sum(len(below) for folder, below, _ in os.walk("/sys/fs/cgroup") if folder.endswith(own))
    memory = {}
    for name, pid in (("spawner", spawner), ("daemon", daemon)):
        with open(f"/proc/{pid}/status") as status:
            memory[name] = next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
    counts = {
        "processes": len(processes),
        "daemon's descriptors": len(listing(f"/proc/{daemon}/fd")),
        "spawner's descriptors": len(listing(f"/proc/{spawner}/fd")) - networks(spawner),
        "cgroups": groups,
        "mounts": len(open(f"/proc/{spawner}/mountinfo").readlines()),
    }
    return counts, memory


def networks(spawner):
    """Counts the networks that are held, for slots and for slots to come. How many of the latter there are changes."""
    count = 0
    for number in listing(f"/proc/{spawner}/fd"):
        try:
            count += os.readlink(f"/proc/{spawner}/fd/{number}").startswith("net:")
        except FileNotFoundError:
            pass
    return count


def settled(spawner, wanted=None):
    """Waits up to 5 s for the pool to be full again and nothing to move any more."""
    before = None
    for _ in range(50):
        time.sleep(0.1)
        now, memory = traces(spawner)
        if now == (wanted or before):
            return now, memory
        before = now
    return now, memory


def main():
    program, in_a_row, at_once, connections = sys.argv[1], *(int(a) for a in (sys.argv[2:] + ["10000", "1000", "16"][len(sys.argv) - 2:]))
    with tempfile.TemporaryDirectory() as data:
        os.chmod(data, 0o755)
        log = open(os.path.join(data, "log"), "w+")
        # Pools that grow with the load would look like leaks.
        environment = {**os.environ, "RINGFENCE_EXECUTIONS__POOL_MEMORY": "1MiB"}
        server = subprocess.Popen([program, "serve", "--listen", "127.0.0.1:0", "--data", f"{data}/state"], stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
        url = ""
        for line in server.stdout:
            url = line.split()[-1] if "serves on" in line else url
            if "/readyz" in line:
                break
        port = int(url.rsplit(":", 1)[1])
        key = open(f"{data}/state/admin.key").read().strip()
        try:
            failed = run(server.pid, port, key, in_a_row, at_once, connections)
        finally:
            server.send_signal(signal.SIGTERM)
            code = server.wait(30)
        if code:
            log.seek(0)
            print(log.read()[-2000:])
        sys.exit(1 if failed or code else 0)


def run(spawner, port, key, in_a_row, at_once, connections):
    one = Connection(port, key)
    for number in range(300):  # caches and pools fill
        one.execute(f"w{number}")
        while one.running:
            one.hear()
    before, memory_before = settled(spawner)

    begin = time.monotonic()
    for number in range(in_a_row):
        one.execute(f"r{number}")
        while one.running:
            one.hear()
    seconds = time.monotonic() - begin
    print(f"{in_a_row} in a row: {in_a_row / seconds:.0f} a second, {len(one.failed)} failed", flush=True)

    several = [Connection(port, key) for _ in range(connections)]
    begin = time.monotonic()
    for number in range(at_once):
        several[number % connections].execute(f"a{number}")
    waiting = selectors.DefaultSelector()
    for connection in several:
        waiting.register(connection.socket, selectors.EVENT_READ, connection)
    while sum(connection.running for connection in several):
        for ready, _ in waiting.select():
            ready.data.hear()
    seconds = time.monotonic() - begin
    failed = one.failed + [frame for connection in several for frame in connection.failed]
    print(f"{at_once} at once on {connections} connections: {at_once / seconds:.0f} a second, {len(failed)} failed", flush=True)
    for connection in several:
        connection.socket.close()

    after, memory_after = settled(spawner, before)
    print(f"before: {before} {memory_before} KiB")
    print(f"after:  {after} {memory_after} KiB")
    for frame in failed[:5]:
        print(frame)
    held = networks(spawner)
    print(f"networks: {held}, at most {MOST_NETWORKS}")
    grown = [name for name in memory_before if memory_after[name] > memory_before[name] + MEMORY_SLACK_KIB]
    return failed or after != before or grown or held > MOST_NETWORKS


main()
