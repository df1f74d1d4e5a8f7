"""A command of 100 MB, watched by the SDK of LangSmith, unchanged, while the server is killed and started again."""

import os
import time
import unittest

from langsmith.sandbox import SandboxClient

from server import Server

LAST = 12_600_000
# The server is killed when so many bytes have come.
KILLS = [1 << 20, 30 << 20, 31 << 20, 70 << 20]


class Streams(unittest.TestCase):
    def setUp(self):
        self.server = Server().start()
        os.environ["LANGSMITH_ENDPOINT"] = self.server.url
        os.environ["LANGSMITH_API_KEY"] = (self.server.path / "data/admin.key").read_text().strip()
        os.environ["LANGSMITH_TRACING"] = "false"
        self.client = SandboxClient()
        self.box = self.client.create_sandbox()

    def tearDown(self):
        self.client.delete_sandbox(self.box.name)
        # It is deleted once this was answered, and gone a little later.
        until = time.monotonic() + 60
        while any((self.server.path / "data/sandboxes").glob("sb_*")):
            self.assertLess(time.monotonic(), until, "the sandbox is not gone")
            time.sleep(0.05)
        self.server.stop()

    def test_no_byte_is_missing_when_the_server_is_killed_in_the_middle(self):
        kills, came, parts = list(KILLS), 0, []

        def hear(part):
            nonlocal came
            parts.append(part)
            came += len(part)
            if kills and came >= kills[0]:
                kills.pop(0)
                self.server.kill()
                self.server.start()

        result = self.box.run(f"seq 1 {LAST}", on_stdout=hear, timeout=300)
        self.assertEqual(result.exit_code, 0)
        self.assertEqual(kills, [])
        expected = "".join(f"{number}\n" for number in range(1, LAST + 1))
        # Both are too long to be shown.
        self.assertTrue("".join(parts) == expected, f"{came} bytes of {len(expected)}")
        self.assertTrue(result.stdout == expected)


if __name__ == "__main__":
    unittest.main()
