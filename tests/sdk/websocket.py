"""As much of a WebSocket client as a test of shells needs."""

import base64
import json
import os
import socket
import struct
import urllib.parse


class WebSocket:
    def __init__(self, url, headers, tls=None):
        where = urllib.parse.urlsplit(url)
        self.socket = socket.create_connection((where.hostname, where.port), timeout=30)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname=where.hostname)
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [f"GET {where.path} HTTP/1.1", f"Host: {where.netloc}", "Connection: Upgrade", "Upgrade: websocket",
                 "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {key}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.socket.sendall("\r\n".join(lines + ["", ""]).encode())
        self.file = self.socket.makefile("rb")
        self.status = int(self.file.readline().split()[1])
        while self.file.readline() not in (b"\r\n", b""):
            pass

    def send(self, **frame):
        data, mask = json.dumps(frame).encode(), os.urandom(4)
        head = struct.pack("!BB", 0x81, 0x80 | len(data)) if len(data) < 126 else struct.pack("!BBH", 0x81, 0xFE, len(data))
        self.socket.sendall(head + mask + bytes(byte ^ mask[i % 4] for i, byte in enumerate(data)))

    def receive(self):
        """Returns the next text frame; nothing at the end."""
        while head := self.file.read(2):
            kind, length = head[0] & 0x0F, head[1] & 0x7F
            if length == 126:
                length = struct.unpack("!H", self.file.read(2))[0]
            elif length == 127:
                length = struct.unpack("!Q", self.file.read(8))[0]
            data = self.file.read(length)
            if kind == 1:
                return json.loads(data)
            if kind == 8:
                return None
        return None

    def close(self):
        self.file.close()
        self.socket.close()
