"""Runs tools with `runner.py` in processes of their own, below a temporary folder.

The interpreter that runs the tests also runs the tools. All tests:

    python3 -m unittest discover -s crates/engine/languages/tools/tests
"""

import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import textwrap
import unittest

TOOLS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
START = f"import sys; sys.path.insert(0, {TOOLS!r})\nimport runner; runner.main()\n"


def payload(script, files=(), entrypoint="run_tool"):
    files = [("script.py", script), *files]
    header = {"entrypoint": entrypoint, "files": [{"path": path, "bytes": len(content)} for path, content in files]}
    return with_header(header, b"".join(content for _, content in files))


def with_header(header, content=b""):
    header = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack(">I", len(header)) + header + content


class Case(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.folder = os.path.realpath(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.base = os.path.join(self.folder, "work")

    def start(self, stdin, timeout=30, **variables):
        """Runs the payload. Keeps status, stdout, stderr and the result."""
        main = os.path.join(self.folder, "workspace", "main.py")
        os.makedirs(os.path.dirname(main), exist_ok=True)
        with open(main, "w") as file:
            file.write(START)
        environment = {
            "HOME": os.path.join(self.folder, "home"),
            "PATH": os.environ["PATH"],
            "PYTHONDONTWRITEBYTECODE": "1",
            "SKRIPTOTEKET_RESULT_PATH": f"{self.base}/result.json",
            "SKRIPTOTEKET_INPUT_DIR": f"{self.base}/input",
            "SKRIPTOTEKET_MEMORY_PATH": f"{self.base}/memory.json",
        }
        done = subprocess.run(
            [sys.executable, main], input=stdin, capture_output=True, timeout=timeout, env={**environment, **variables}
        )
        self.status = done.returncode
        self.stdout, self.stderr = done.stdout.decode(), done.stderr.decode("utf-8", "replace")
        self.result = None
        path = f"{self.base}/result.json"
        if os.path.isfile(path):
            with open(path, encoding="utf-8") as file:
                self.result = json.load(file, parse_constant=self.fail)

    def run_script(self, script, files=(), entrypoint="run_tool", **variables):
        script = script if isinstance(script, bytes) else textwrap.dedent(script).encode()
        self.start(payload(script, files, entrypoint), **variables)

    def run_body(self, body, **more):
        """Runs a tool with these lines as the body of `run_tool`."""
        body = textwrap.indent(textwrap.dedent(body), "    ")
        self.run_script(f"def run_tool(input_dir, output_dir):\n{body}", **more)

    def assert_succeeded(self, **expected):
        self.assertEqual((self.status, self.result and self.result["status"]), (0, "succeeded"), self.stderr)
        self.assertIsNone(self.result["error_summary"])
        for key, value in expected.items():
            self.assertEqual(self.result[key], value)

    def assert_failed(self, summary):
        self.assertEqual((self.status, self.result and self.result["status"]), (0, "failed"), self.stderr)
        self.assertEqual(self.result["error_summary"], summary)
        self.assertEqual([self.result[key] for key in ("outputs", "next_actions", "state")], [[], [], None])
