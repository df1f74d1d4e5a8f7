"""Tests what a run starts with: its payload, and what the tool sees of it."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import unittest

from harness import START, Case, payload, with_header


class Surroundings(Case):
    def test_files_are_written_below_the_base(self):
        self.run_body(
            """
            with open(input_dir + "/data.csv", "rb") as data, open("helpers/memo.txt") as memo:
                print(data.read(), memo.read())
            return {}
            """,
            files=[("input/data.csv", b"\0\xff"), ("helpers/memo.txt", b"memo"), ("empty", b"")],
        )
        self.assert_succeeded()
        self.assertEqual(self.stdout, "b'\\x00\\xff' memo\n")

    def test_a_file_may_be_larger_than_a_pipe(self):
        content = bytes(range(256)) * 12_345
        self.run_body(
            "import hashlib\nprint(hashlib.sha256(open(input_dir + '/big', 'rb').read()).hexdigest())\nreturn {}",
            files=[("input/big", content), ("input/small", b"x")],
        )
        self.assertEqual(self.stdout, hashlib.sha256(content).hexdigest() + "\n")

    def test_the_tool_sees_a_script_in_the_base_folder(self):
        self.run_body(
            """
            import json, os, sys
            print(json.dumps([sys.argv, os.getcwd(), sys.path[0], input_dir, output_dir, __file__, __name__]))
            print(os.path.isdir(os.environ["HOME"]), os.listdir(output_dir), "runner" in sys.modules)
            print(any("workspace" in folder for folder in sys.path))
            return {}
            """
        )
        self.assert_succeeded()
        script, base = f"{self.base}/script.py", self.base
        seen, *rest = self.stdout.splitlines()
        self.assertEqual(
            json.loads(seen), [[script], base, base, f"{base}/input", f"{base}/output", script, "tool_script"]
        )
        self.assertEqual(rest, ["True [] False", "False"])

    def test_home_is_a_default_if_it_is_not_set(self):
        self.run_body("import os\nprint(os.environ['HOME'])\nreturn {}", HOME="")
        self.assertEqual(self.stdout, "/tmp/home\n")

    def test_stdin_is_empty(self):
        self.run_body(
            """
            import os, subprocess, sys
            print(repr(sys.stdin.read()), os.read(0, 1), os.readlink("/proc/self/fd/0"))
            print(subprocess.run(["cat"], stdout=-1).stdout)
            return {}
            """
        )
        self.assertEqual(self.stdout, "'' b'' /dev/null\nb''\n")

    def test_the_tool_does_not_wait_for_the_end_of_stdin(self):
        process = subprocess.Popen(
            [sys.executable, "-c", START],
            stdin=subprocess.PIPE,
            env={"SKRIPTOTEKET_RESULT_PATH": f"{self.base}/result.json", "HOME": self.folder},
        )
        process.stdin.write(payload(b"def run_tool(i, o): return {}"))
        process.stdin.flush()
        self.assertEqual(process.wait(30), 0)
        process.stdin.close()

    def test_files_beside_the_script_can_be_imported(self):
        self.run_body(
            "import runner, helper\nprint(runner.NAME, helper.NAME)\nreturn {}",
            files=[("runner.py", b"NAME = 1"), ("helper.py", b"NAME = 2")],
        )
        self.assertEqual(self.stdout, "1 2\n")

    def test_pickle_and_dataclasses_find_the_module(self):
        self.run_script(
            """
            from __future__ import annotations
            import dataclasses, pickle
            @dataclasses.dataclass
            class Point:
                x: int
            def run_tool(i, o):
                print(pickle.loads(pickle.dumps(Point(3))))
                return {}
            """
        )
        self.assertEqual(self.stdout, "Point(x=3)\n")

    def test_a_script_may_declare_its_encoding_and_have_a_byte_order_mark(self):
        self.run_script("# coding: latin-1\ndef run_tool(i, o): return 'å'\n".encode("latin-1"))
        self.assert_succeeded(outputs=[{"kind": "html_sandboxed", "html": "å"}])
        shutil.rmtree(self.base)
        self.run_script(b"\xef\xbb\xbfdef run_tool(i, o): return 'x'\n")
        self.assert_succeeded()


class BadPayload(Case):
    def assert_refused(self, stdin, reason):
        self.start(stdin)
        self.assertEqual((self.status, self.stdout, self.result), (2, "", None))
        self.assertIn(f"cannot start the tool: {reason}", self.stderr)
        self.assertNotIn("Traceback", self.stderr)

    def test_a_payload_that_ends_early_is_refused(self):
        whole = payload(b"print(1)")
        for end in 0, 3, 4, 20, len(whole) - 1:
            with self.subTest(end=end):
                shutil.rmtree(self.base, ignore_errors=True)
                self.assert_refused(whole[:end], "the payload ends")

    def test_a_header_that_is_too_long_is_refused(self):
        self.assert_refused(b"\xff\xff\xff\xff{}", "the header has 4294967295 bytes, more than 1048576")

    def test_a_header_that_is_not_json_is_refused(self):
        for header in b"", b"{", b"\xff\xfe", b"[" * 100_000, b"nul":
            self.assert_refused(with_header(header), "")

    def test_a_header_without_files_or_entrypoint_is_refused(self):
        script = {"path": "script.py", "bytes": 0}
        for header, reason in [
            ([], "the header has no list of files"),
            (None, "the header has no list of files"),
            ({"entrypoint": "run_tool"}, "the header has no list of files"),
            ({"entrypoint": "run_tool", "files": {}}, "the header has no list of files"),
            ({"files": [script]}, "the header has no entrypoint"),
            ({"entrypoint": " ", "files": [script]}, "the header has no entrypoint"),
            ({"entrypoint": 3, "files": [script]}, "the header has no entrypoint"),
            ({"entrypoint": "run_tool", "files": []}, "the header has no script.py"),
        ]:
            with self.subTest(header=header):
                self.assert_refused(with_header(header), reason)

    def test_an_entry_that_is_not_a_file_is_refused(self):
        for entry in [
            None,
            "script.py",
            {},
            {"path": "script.py"},
            {"path": 3, "bytes": 0},
            {"path": "script.py", "bytes": -1},
            {"path": "script.py", "bytes": True},
            {"path": "script.py", "bytes": 1.0},
            {"path": "script.py", "bytes": "1"},
        ]:
            with self.subTest(entry=entry):
                header = {"entrypoint": "x", "files": [entry]}
                self.assert_refused(with_header(header), "not a file with path and bytes")

    def test_a_path_out_of_the_base_is_refused(self):
        bad = ["", "/", "/etc/x", "..", "../x", "a/../b", "a/..", "./a", "a/.", "a//b", "a/", "a\0b", "x" * 5000]
        for path in [*bad, "result.json"]:
            with self.subTest(path=path):
                header = {"entrypoint": "x", "files": [{"path": path, "bytes": 0}, {"path": "script.py", "bytes": 0}]}
                self.assert_refused(with_header(header), "not a path for a file")
        self.assertEqual(sorted(os.listdir(self.folder)), ["workspace"])

    def test_a_path_that_cannot_be_written_is_refused(self):
        for paths in ["script.py", "script.py"], ["script.py", "input"], ["script.py", "script.py/x"], ["x" * 256]:
            with self.subTest(paths=paths):
                shutil.rmtree(self.base, ignore_errors=True)
                header = {"entrypoint": "x", "files": [{"path": path, "bytes": 0} for path in paths + ["script.py"]]}
                self.assert_refused(with_header(header), "")

    def test_a_path_that_is_no_unicode_is_refused(self):
        header = {"entrypoint": "x", "files": [{"path": "\ud800", "bytes": 0}, {"path": "script.py", "bytes": 0}]}
        self.assert_refused(with_header(header), "")

    def test_an_existing_link_is_not_followed(self):
        os.mkdir(self.base)
        os.symlink(f"{self.folder}/elsewhere", f"{self.base}/script.py")
        self.assert_refused(payload(b"print(1)"), "")
        self.assertFalse(os.path.lexists(f"{self.folder}/elsewhere"))


if __name__ == "__main__":
    unittest.main()
