"""Tests tools that break things, and tools that leave things running."""

import os
import shutil
import time
import unittest

from harness import Case


class HostileTools(Case):
    def test_a_tool_that_ends_the_process_leaves_no_result(self):
        self.run_body("import os\nos._exit(7)")
        self.assertEqual((self.status, self.result), (7, None))

    def test_a_tool_that_crashes_leaves_no_result(self):
        self.run_body("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)")
        self.assertEqual((self.status, self.result), (-11, None))

    def test_classes_of_the_tool_cannot_mislead_the_conversion(self):
        self.run_script(
            """
            import collections, enum
            class Dict(dict):
                def items(self): raise ValueError
                def get(self, *a): raise ValueError
                __class__ = property(lambda self: 1 / 0)
            class List(list):
                def __iter__(self): raise ValueError
            class Text(str):
                def __str__(self): raise ValueError
                def encode(self, *a): raise ValueError
            class Whole(int):
                def __repr__(self): return "{"
                def __lt__(self, other): raise ValueError
            class Broken(float):
                def __repr__(self): return "{"
            class Pretender:
                __class__ = dict
            class Silent:
                def __str__(self): raise SystemExit
            class Wrong:
                def __str__(self): return 3
            class Meta(type):
                __name__ = property(lambda self: 1 / 0)
                def __instancecheck__(self, other): raise ValueError
            class Named(metaclass=Meta):
                def __str__(self): raise ValueError
            Color = enum.Enum("Color", "RED")
            Level = enum.IntEnum("Level", "LOW")
            def run_tool(i, o):
                values = List([Text("t"), Whole(5), Broken(1.5), Silent(), Wrong(), Named(), Color.RED, Level.LOW])
                print(type(Pretender()).__name__)
                return Dict(state=Dict({Text("k"): values, "p": str(Pretender())[:1], "r": collections.Counter("aa")}))
            """
        )
        self.assert_succeeded(
            state={
                "k": ["t", 5, 1.5, "<Silent>", "<Wrong>", "<Named>", "Color.RED", 1],
                "p": "<",
                "r": {"a": 2},
            }
        )

    def test_an_exception_that_cannot_be_printed_fails_the_run(self):
        self.run_body(
            """
            class Bad(Exception):
                __notes__ = property(lambda self: 1 / 0)
                def __str__(self): raise SystemExit
                __repr__ = __str__
            raise Bad
            """
        )
        self.assert_failed("Tool execution failed (Bad).")
        self.assertIn("Bad", self.stderr)

    def test_a_tool_user_error_that_cannot_be_printed_fails_the_run(self):
        self.run_body(
            """
            import ringfence_tool
            class Bad(ringfence_tool.ToolUserError):
                def __str__(self): raise SystemExit
            raise Bad
            """
        )
        self.assert_failed("<Bad>")

    def test_standard_streams_may_be_closed_or_replaced(self):
        for statements in [
            "sys.stdout.close(); sys.stderr.close()",
            "sys.stdout = sys.stderr = None",
            "sys.stdout = sys.stderr = object()",
            "os.close(1); print('x')",
            "os.close(1); os.close(2); sys.stdout.write('x')",
            "sys.stdout.detach()",
            "del sys.stdout, sys.stderr",
        ]:
            with self.subTest(statements=statements):
                shutil.rmtree(self.base, ignore_errors=True)
                self.run_body(f"import os, sys\n{statements}\n1 / 0")
                self.assertEqual((self.status, self.result["status"]), (0, "failed"), self.stderr)

    def test_a_traceback_is_written_although_stderr_is_replaced(self):
        self.run_body("import io, sys\nsys.stderr = io.StringIO()\n1 / 0")
        self.assertIn("ZeroDivisionError", self.stderr)

    def test_the_working_folder_and_the_search_path_may_be_changed(self):
        self.run_body("import os, sys\nos.chdir('/')\nsys.path.clear()\nos.environ.clear()\nreturn {}")
        self.assert_succeeded()

    def test_a_thread_does_not_keep_the_run_open(self):
        start = time.monotonic()
        self.run_body(
            """
            import atexit, threading, time
            atexit.register(print, "exit handler")
            threading.Thread(target=time.sleep, args=(60,)).start()
            global kept
            kept = open(output_dir + "/kept.txt", "w")
            kept.write("buffered")
            print("buffered", end=" ")
            return {}
            """
        )
        self.assertLess(time.monotonic() - start, 20)
        self.assert_succeeded()
        self.assertEqual(self.stdout, "buffered exit handler\n")
        with open(f"{self.base}/output/kept.txt") as file:
            self.assertEqual(file.read(), "buffered")

    def test_a_thread_that_soon_ends_is_waited_for(self):
        self.run_body(
            """
            import threading, time
            def write():
                time.sleep(0.2)
                print("written")
            threading.Thread(target=write).start()
            return {}
            """
        )
        self.assert_succeeded()
        self.assertEqual(self.stdout, "written\n")

    def test_a_daemon_thread_that_prints_does_not_abort_the_end(self):
        for _ in range(3):
            shutil.rmtree(self.base, ignore_errors=True)
            self.run_body(
                """
                import threading
                def show():
                    while True:
                        print("x" * 50)
                threading.Thread(target=show, daemon=True).start()
                return {}
                """
            )
            self.assert_succeeded()

    def test_an_executor_that_is_not_shut_down_does_not_keep_the_run_open(self):
        self.run_body(
            """
            from concurrent.futures import ThreadPoolExecutor
            global executor
            executor = ThreadPoolExecutor(2)
            return {"state": {"sum": sum(executor.map(abs, range(3)))}}
            """
        )
        self.assert_succeeded(state={"sum": 3})

    def test_a_process_of_multiprocessing_does_not_keep_the_run_open(self):
        start = time.monotonic()
        self.run_body(
            """
            import multiprocessing, time
            multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,)).start()
            return {}
            """
        )
        self.assertLess(time.monotonic() - start, 20)
        self.assert_succeeded()

    def test_a_forked_process_that_returns_writes_no_result(self):
        self.run_body(
            """
            import os
            if os.fork() == 0:
                return {"state": {"from": "child"}}
            os.wait()
            print(os.path.exists("result.json"))
            return {"state": {"from": "parent"}}
            """
        )
        self.assert_succeeded(state={"from": "parent"})
        self.assertEqual(self.stdout, "False\n")

    def test_exit_handlers_run(self):
        self.run_body("import atexit\natexit.register(print, 'bye')\natexit.register(lambda: 1 / 0)\nreturn {}")
        self.assert_succeeded()
        self.assertEqual(self.stdout, "bye\n")

    def test_a_result_that_cannot_be_written_is_an_error(self):
        self.run_body("import os\nos.mkdir('result.json')\nreturn {}")
        self.assertEqual((self.status, self.result), (1, None))
        self.assertRegex(self.stderr, "^cannot write result.json: ")

    def test_a_link_in_place_of_the_result_is_replaced(self):
        self.run_body("import os\nopen('other', 'w').close()\nos.symlink('other', 'result.json')\nreturn {}")
        self.assert_succeeded()
        self.assertEqual(os.path.getsize(f"{self.base}/other"), 0)


if __name__ == "__main__":
    unittest.main()
