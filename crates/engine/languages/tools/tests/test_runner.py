"""Tests how a tool is called, and what `result.json` says of it."""

import os
import shutil
import unittest

from harness import Case


class Entrypoints(Case):
    def test_another_entrypoint_can_be_named(self):
        self.run_script("def other(i, o): return 'x'", entrypoint=" other ")
        self.assert_succeeded(outputs=[{"kind": "html_sandboxed", "html": "x"}])

    def test_a_coroutine_function_is_awaited(self):
        self.run_script(
            "import asyncio\nasync def run_tool(i, o):\n    await asyncio.sleep(0)\n    return {'state': {'a': 1}}"
        )
        self.assert_succeeded(state={"a": 1})

    def test_any_awaitable_is_awaited(self):
        self.run_script(
            """
            class Later:
                def __await__(self):
                    yield
                    return "x"
            def run_tool(i, o):
                return Later()
            """
        )
        self.assert_succeeded(outputs=[{"kind": "html_sandboxed", "html": "x"}])

    def test_a_callable_object_is_called(self):
        self.run_script("import functools\nrun_tool = functools.partial(lambda a, i, o: {'state': {'a': a}}, 7)")
        self.assert_succeeded(state={"a": 7})

    def test_a_missing_entrypoint_is_named(self):
        self.run_script("def run(i, o): pass")
        self.assert_failed("The script has no function 'run_tool'.")
        self.assertEqual(self.stderr, "The script has no function 'run_tool'.\n")

    def test_an_entrypoint_that_is_not_callable_is_named(self):
        self.run_script("run_tool = 3")
        self.assert_failed("'run_tool' is not a function.")

    def test_an_entrypoint_without_parameters_fails(self):
        self.run_script("def run_tool(): pass")
        self.assert_failed("Tool execution failed (TypeError).")
        self.assertIn("run_tool() takes 0 positional arguments but 2 were given", self.stderr)


class Errors(Case):
    def test_a_syntax_error_has_message_line_column_and_caret(self):
        self.run_script("x = 1\ndef run_tool(i, o):\n    return (1 +* 2)\n")
        summary = "SyntaxError: invalid syntax (line 3, column 16)\n    return (1 +* 2)\n               ^"
        self.assert_failed(summary)
        self.assertIn(f'  File "{self.base}/script.py", line 3\n', self.stderr)
        self.assertEqual(self.stderr.count("SyntaxError: invalid syntax"), 1)
        self.assertNotIn("runner.py", self.stderr)

    def test_an_error_of_the_compiler_is_a_syntax_error(self):
        self.run_script("def run_tool(i, o):\n    pass\n    # å\nreturn 1\n")
        self.assert_failed("SyntaxError: 'return' outside function (line 4, column 1)\n    return 1\n    ^")

    def test_the_column_of_a_syntax_error_counts_characters(self):
        for first, encoding in ("", "utf-8"), ("# coding: utf-8", "utf-8"), ("# coding: latin-1", "latin-1"):
            with self.subTest(first=first):
                shutil.rmtree(self.base, ignore_errors=True)
                self.run_script(f"{first}\nx = 'åäö' +* 1\n".encode(encoding))
                place = "(line 2, column 12)\n    x = 'åäö' +* 1\n               ^"
                self.assert_failed(f"SyntaxError: invalid syntax {place}")

    def test_an_indentation_error_is_a_syntax_error(self):
        self.run_script("def run_tool(i, o):\nreturn 1\n")
        first, *rest = self.result["error_summary"].split("\n")
        self.assertRegex(first, r"^IndentationError: expected an indented block.* \(line 2, column 1\)$")
        self.assertEqual(rest, ["    return 1", "    ^"])

    def test_a_long_line_with_a_syntax_error_is_cut_around_the_column(self):
        self.run_script("x = '" + "a" * 100_000 + "' +* 1 # " + "b" * 100_000)
        lines = self.result["error_summary"].split("\n")
        self.assertEqual(lines[0], "SyntaxError: invalid syntax (line 1, column 100009)")
        self.assertLess(len(lines[1]), 200)
        self.assertEqual(lines[1][lines[2].index("^")], "*")

    def test_a_script_that_cannot_be_compiled_fails(self):
        nested = [b"(" * 10_000, b"x = " + b"-" * 200_000 + b"1"]
        for script in [b"\xff\xfe", b"x = '\xff'", b"x\0", b"# coding: nonsense\n", *nested]:
            with self.subTest(script=script[:10]):
                shutil.rmtree(self.base, ignore_errors=True)
                self.run_script(script)
                if self.status != -11:  # Some versions overflow the stack of the process on deep nesting.
                    self.assertEqual((self.status, self.result["status"]), (0, "failed"), self.stderr)
                    self.assertRegex(self.result["error_summary"], "Error")

    def test_the_text_of_an_exception_is_not_in_the_summary(self):
        self.run_body("raise ValueError('secret')")
        self.assert_failed("Tool execution failed (ValueError).")
        self.assertIn("ValueError: secret", self.stderr)

    def test_an_exception_while_the_script_is_loaded_fails_the_run(self):
        self.run_script("import nothing_of_this_name")
        self.assert_failed("Tool execution failed (ModuleNotFoundError).")

    def test_exits_and_interrupts_fail_the_run(self):
        for statement, name in [
            ("raise SystemExit(0)", "SystemExit"),
            ("import sys; sys.exit('bye')", "SystemExit"),
            ("raise KeyboardInterrupt", "KeyboardInterrupt"),
            ("import os, signal; os.kill(os.getpid(), signal.SIGINT); import time; time.sleep(9)", "KeyboardInterrupt"),
            ("raise GeneratorExit", "GeneratorExit"),
            ("raise type('Own', (BaseException,), {})", "Own"),
        ]:
            with self.subTest(statement=statement):
                shutil.rmtree(self.base, ignore_errors=True)
                self.run_body(statement)
                self.assert_failed(f"Tool execution failed ({name}).")

    def test_the_traceback_starts_in_the_script(self):
        self.run_script("def run_tool(i, o):\n    inner()\ndef inner():\n    1 / 0\n")
        lines = [line for line in self.stderr.splitlines() if "^" not in line and "~" not in line]
        self.assertEqual(
            lines,
            [
                "Traceback (most recent call last):",
                f'  File "{self.base}/script.py", line 2, in run_tool',
                "    inner()",
                f'  File "{self.base}/script.py", line 4, in inner',
                "    1 / 0",
                "ZeroDivisionError: division by zero",
            ],
        )

    def test_the_traceback_of_a_coroutine_starts_in_the_script(self):
        self.run_script("async def run_tool(i, o):\n    1 / 0\n")
        self.assert_failed("Tool execution failed (ZeroDivisionError).")
        self.assertNotIn("asyncio", self.stderr)
        self.assertNotIn("runner", self.stderr)

    def test_the_cause_of_an_exception_is_in_the_traceback(self):
        self.run_body("try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise ValueError from error")
        self.assertIn("The above exception was the direct cause", self.stderr)

    def test_deep_recursion_fails_the_run(self):
        self.run_body("return run_tool(input_dir, output_dir)")
        self.assert_failed("Tool execution failed (RecursionError).")

    def test_the_text_of_a_tool_user_error_is_the_summary(self):
        for module in "tool_errors", "ringfence_tool":
            shutil.rmtree(self.base, ignore_errors=True)
            self.run_body(f"from {module} import ToolUserError\nraise ToolUserError(' Fel fil: å \\ud800 ')")
            self.assert_failed("Fel fil: å \ufffd")

    def test_a_tool_user_error_without_text_has_the_general_summary(self):
        self.run_body("from tool_errors import ToolUserError\nraise ToolUserError('  ')")
        self.assert_failed("Tool execution failed (ToolUserError).")

    def test_a_long_summary_is_cut(self):
        self.run_body("from tool_errors import ToolUserError\nraise ToolUserError('x' * 1_000_000)")
        self.assert_failed("x" * 20_000)

    def test_a_result_of_another_type_fails_the_run(self):
        for value, name in ("None", "NoneType"), ("3", "int"), ("[]", "list"), ("b''", "bytes"), ("str", "type"):
            with self.subTest(value=value):
                shutil.rmtree(self.base, ignore_errors=True)
                self.run_body(f"return {value}")
                self.assert_failed(f"The tool returned {name}; it must return a dict, or a str with HTML.")

    def test_artifacts_of_a_failed_run_are_listed(self):
        self.run_body("open(output_dir + '/a', 'w').write('123')\n1 / 0")
        self.assert_failed("Tool execution failed (ZeroDivisionError).")
        self.assertEqual(self.result["artifacts"], [{"path": "output/a", "bytes": 3}])


class Results(Case):
    def test_the_whole_result_of_a_str(self):
        self.run_body("return '<p>hej å</p>'")
        self.assertEqual(
            self.result,
            {
                "contract_version": 2,
                "status": "succeeded",
                "error_summary": None,
                "outputs": [{"kind": "html_sandboxed", "html": "<p>hej å</p>"}],
                "next_actions": [],
                "state": None,
                "artifacts": [],
            },
        )
        self.assertEqual(sorted(os.listdir(self.base)), ["input", "output", "result.json", "script.py"])
        with open(f"{self.base}/result.json", "rb") as file:
            self.assertIn("å".encode(), file.read())

    def test_an_empty_str_is_no_output(self):
        self.run_body("return ''")
        self.assert_succeeded(outputs=[])

    def test_only_known_keys_of_a_dict_are_kept(self):
        self.run_body(
            """
            return {
                "outputs": [{"kind": "markdown", "markdown": "x", "extra": 1}], "next_actions": [{"action_id": "a"}],
                "state": {"a": {"b": (1, 2)}}, "status": "failed", "artifacts": [1], "contract_version": 9, 3: 4,
            }
            """
        )
        self.assert_succeeded(
            outputs=[{"kind": "markdown", "markdown": "x", "extra": 1}],
            next_actions=[{"action_id": "a"}],
            state={"a": {"b": [1, 2]}},
            artifacts=[],
            contract_version=2,
        )

    def test_lists_and_state_of_other_types_are_dropped(self):
        for value in "3", "'x'", "{'a': 1}", "({'kind': 'x'},)", "None":
            shutil.rmtree(self.base, ignore_errors=True)
            self.run_body(f"return {{'outputs': {value}, 'next_actions': {value}}}")
            self.assert_succeeded(outputs=[], next_actions=[])
        for value in "3", "[]", "'x'", "None":
            shutil.rmtree(self.base, ignore_errors=True)
            self.run_body(f"return {{'state': {value}}}")
            self.assert_succeeded(state=None)

    def test_items_that_are_no_dicts_are_dropped(self):
        self.run_body("return {'outputs': [None, 'x', {'kind': 'y'}, [], 3], 'next_actions': ['x', {}]}")
        self.assert_succeeded(outputs=[{"kind": "y"}], next_actions=[{}])

    def test_an_empty_state_is_kept(self):
        self.run_body("return {'state': {}}")
        self.assert_succeeded(state={})

    def test_artifacts_are_the_regular_files_below_output(self):
        self.run_body(
            """
            import os, socket
            os.makedirs(output_dir + "/b/c")
            for name in "z.txt", "a.txt", "b/c/d", "å", "a b":
                open(f"{output_dir}/{name}", "w").write(name)
            os.symlink("/etc/passwd", output_dir + "/link")
            os.symlink("/etc", output_dir + "/folder")
            os.symlink("..", output_dir + "/b/loop")
            os.mkfifo(output_dir + "/fifo")
            open(os.fsencode(output_dir) + b"/\\xff", "w").close()
            return {}
            """
        )
        self.assert_succeeded(
            artifacts=[
                {"path": "output/a b", "bytes": 3},
                {"path": "output/a.txt", "bytes": 5},
                {"path": "output/b/c/d", "bytes": 5},
                {"path": "output/z.txt", "bytes": 5},
                {"path": "output/å", "bytes": 2},
                {"path": "output/\ufffd", "bytes": 0},
            ]
        )

    def test_an_output_folder_that_is_a_link_has_no_artifacts(self):
        self.run_body("import os\nos.rmdir(output_dir)\nos.symlink('/etc', output_dir)\nreturn {}")
        self.assert_succeeded(artifacts=[])

    def test_a_missing_or_unreadable_output_folder_has_no_artifacts(self):
        self.run_body("import os\nos.rmdir(output_dir)\nreturn {}")
        self.assert_succeeded(artifacts=[])

    def test_output_of_the_tool_is_kept(self):
        self.run_body("import sys\nprint('out', end='')\nsys.stderr.write('err')\nreturn {}")
        self.assertEqual((self.stdout, self.stderr), ("out", "err"))


if __name__ == "__main__":
    unittest.main()
