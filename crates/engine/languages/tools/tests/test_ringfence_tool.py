"""Tests the helpers that scripts import."""

import json
import os
import sys
import tempfile
import types
import unittest
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import pdf_helper  # noqa: E402
import ringfence_tool as tool  # noqa: E402
import skriptoteket_toolkit  # noqa: E402
import tool_errors  # noqa: E402

MALFORMED = ["", " ", "{", "[]", "3", "null", '"x"', "\udcff", "[" * 100_000, "9" * 10_000]


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = os.path.realpath(self.enter(tempfile.TemporaryDirectory()))
        self.enter(mock.patch.dict(os.environ))
        for name in [name for name in os.environ if name.startswith("SKRIPTOTEKET_")]:
            del os.environ[name]
        os.environ["SKRIPTOTEKET_INPUT_DIR"] = self.folder
        os.environ["SKRIPTOTEKET_MEMORY_PATH"] = f"{self.folder}/memory.json"

    def enter(self, context):
        value = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        return value

    def set(self, name, value):
        os.environ[f"SKRIPTOTEKET_{name}"] = value if isinstance(value, str) else json.dumps(value)

    def write(self, name, value):
        with open(f"{self.folder}/{name}", "wb") as file:
            file.write(value if isinstance(value, bytes) else json.dumps(value).encode())


class Reading(Case):
    def test_inputs(self):
        self.assertEqual(tool.read_inputs(), {})
        self.set("INPUTS", {"name": "å", "count": 3})
        self.assertEqual(tool.read_inputs(), {"name": "å", "count": 3})

    def test_malformed_variables_are_empty(self):
        for text in MALFORMED:
            for name in "INPUTS", "INPUT_MANIFEST", "ACTION":
                self.set(name, text)
            self.assertEqual(tool.read_inputs(), {})
            self.assertEqual(tool.read_input_manifest(), {"files": []})
            self.assertEqual(tool.list_input_files(), [])
            self.assertIsNone(tool.read_action())
            self.assertEqual(tool.get_action_parts(), (None, {}, {}))

    def test_malformed_files_are_empty(self):
        for text in MALFORMED:
            self.write("memory.json", text.encode("utf-8", "surrogateescape"))
            self.write("action.json", text.encode("utf-8", "surrogateescape"))
            self.assertEqual(tool.read_memory(), {})
            self.assertEqual(tool.read_settings(), {})
            self.assertIsNone(tool.read_action())

    def test_input_files(self):
        good = {"name": "a", "path": "/work/input/a", "bytes": 3}
        bad = [None, {}, {**good, "name": 1}, {**good, "path": None}, {**good, "bytes": True}, {**good, "bytes": "3"}]
        self.set("INPUT_MANIFEST", {"files": [*bad, {**good, "extra": 1}], "more": 2})
        self.assertEqual(tool.list_input_files(), [good])
        self.assertEqual(tool.read_input_manifest()["more"], 2)
        self.set("INPUT_MANIFEST", {"files": {}})
        self.assertEqual(tool.read_input_manifest(), {"files": []})

    def test_action(self):
        self.set("ACTION", {"action_id": " next ", "input": {"a": 1}, "state": {"b": 2}, "more": 3})
        self.assertEqual(tool.read_action(), {"action_id": "next", "input": {"a": 1}, "state": {"b": 2}})
        self.assertEqual(tool.get_action_parts(), ("next", {"a": 1}, {"b": 2}))

    def test_an_action_without_input_and_state_has_empty_ones(self):
        self.set("ACTION", {"action_id": "next", "input": [], "state": None})
        self.assertEqual(tool.get_action_parts(), ("next", {}, {}))

    def test_an_action_without_id_is_none(self):
        for action_id in None, "", " ", 3:
            self.set("ACTION", {"action_id": action_id, "input": {}, "state": {}})
            self.assertIsNone(tool.read_action())

    def test_the_action_may_be_a_file(self):
        self.write("action.json", {"action_id": "next", "input": {"a": 1}, "state": {"b": 2}})
        self.assertEqual(tool.get_action_parts(), ("next", {"a": 1}, {"b": 2}))

    def test_the_file_is_not_read_if_the_variable_exists(self):
        self.write("action.json", {"action_id": "uploaded", "state": {"forged": True}})
        self.set("ACTION", "")
        self.assertIsNone(tool.read_action())
        self.set("ACTION", {"action_id": "next"})
        self.assertEqual(tool.get_action_parts(), ("next", {}, {}))

    def test_memory_and_settings(self):
        self.assertEqual(tool.read_memory(), {})
        self.write("memory.json", {"settings": {"color": "red"}, "more": 1})
        self.assertEqual(tool.read_memory(), {"settings": {"color": "red"}, "more": 1})
        self.assertEqual(tool.read_settings(), {"color": "red"})
        self.write("memory.json", {"settings": []})
        self.assertEqual(tool.read_settings(), {})


class Names(unittest.TestCase):
    def test_existing_scripts_find_their_names(self):
        for name in skriptoteket_toolkit.__all__:
            self.assertTrue(hasattr(skriptoteket_toolkit, name), name)
        self.assertIs(skriptoteket_toolkit.read_inputs, tool.read_inputs)
        self.assertIs(tool_errors.ToolUserError, tool.ToolUserError)
        self.assertIs(pdf_helper.save_as_pdf, tool.save_as_pdf)

    def test_a_tool_user_error_has_its_trimmed_message(self):
        error = tool.ToolUserError(" no file ")
        self.assertEqual((str(error), error.safe_message), ("no file", "no file"))


class Outputs(unittest.TestCase):
    def test_each_kind(self):
        self.assertEqual(tool.notice("info", " x "), {"kind": "notice", "level": "info", "message": "x"})
        self.assertEqual(tool.markdown("# x"), {"kind": "markdown", "markdown": "# x"})
        self.assertEqual(tool.html("<p>"), {"kind": "html_sandboxed", "html": "<p>"})
        self.assertEqual(tool.json_output([1], title="T"), {"kind": "json", "title": "T", "value": [1]})

    def test_what_the_server_would_refuse_is_an_error(self):
        for make in [
            lambda: tool.notice("fatal", "x"),
            lambda: tool.notice("info", " "),
            lambda: tool.notice("info", None),
            lambda: tool.markdown(""),
            lambda: tool.markdown(3),
            lambda: tool.html(""),
            lambda: tool.table([], []),
            lambda: tool.table(["a", "a"], []),
            lambda: tool.table([" "], []),
            lambda: tool.table([("a", " ")], []),
            lambda: tool.table([{"label": "x"}], []),
            lambda: tool.table(["a"], [[1, 2]]),
            lambda: tool.field("", "x", "string"),
            lambda: tool.field("x", " ", "string"),
            lambda: tool.field("x", "x", "file"),
            lambda: tool.field("x", "x", "enum"),
            lambda: tool.field("x", "x", "multi_enum", []),
            lambda: tool.field("x", "x", "string", ["a"]),
            lambda: tool.field("x", "x", "enum", ["a", "a"]),
            lambda: tool.form(" ", "x"),
            lambda: tool.form("x", ""),
            lambda: tool.form("x", "x", [tool.field("a", "a", "text"), tool.field("a", "b", "text")]),
            lambda: tool.form("x", "x", [], {"a": 1}),
        ]:
            with self.assertRaises(ValueError):
                make()

    def test_columns_may_be_keys_pairs_or_dicts(self):
        expected = [{"key": "a", "label": "A"}, {"key": "b", "label": "b"}]
        for columns in [("a", "A"), "b"], [{"key": "a", "label": "A"}, {"key": "b"}], {"a": "A", "b": "b"}:
            self.assertEqual(tool.table(columns, [])["columns"], expected)

    def test_rows_may_be_dicts_or_sequences(self):
        table = tool.table(["a", "b"], [{"a": 1, "c": 2}, ("x", None), iter([True, 1.5])], title="T")
        self.assertEqual(table["rows"], [{"a": 1}, {"a": "x", "b": None}, {"a": True, "b": 1.5}])
        self.assertEqual((table["kind"], table["title"]), ("table", "T"))

    def test_other_cells_become_text(self):
        self.assertEqual(tool.table(["a"], [[[1]], [b"x"]])["rows"], [{"a": "[1]"}, {"a": "b'x'"}])

    def test_a_form(self):
        choice = tool.field("color", "Color", "enum", options=["red", ("blue", "Blue"), {"value": "x", "label": "X"}])
        options = [("red", "red"), ("blue", "Blue"), ("x", "X")]
        self.assertEqual(choice["options"], [{"value": value, "label": label} for value, label in options])
        name = tool.field(" name ", "Name", "string")
        self.assertEqual(name, {"name": "name", "label": "Name", "kind": "string"})
        self.assertEqual(
            tool.form("go", "Go", [choice, name], prefill={"name": "x"}),
            {"action_id": "go", "label": "Go", "kind": "form", "fields": [choice, name], "prefill": {"name": "x"}},
        )
        self.assertEqual(tool.form("go", "Go")["fields"], [])


class Pdf(Case):
    def setUp(self):
        super().setUp()
        self.output = f"{self.folder}/output"

    def save(self, filename):
        """Saves with a stand-in for weasyprint."""
        test = self

        class HTML:
            def __init__(self, string, base_url):
                test.base_url = base_url
                self.string = string

            def write_pdf(self):
                return b"%PDF " + self.string.encode()

        with mock.patch.dict(sys.modules, weasyprint=types.SimpleNamespace(HTML=HTML)):
            return tool.save_as_pdf("<p>", self.output, filename)

    def test_a_pdf_is_written_below_the_output_folder(self):
        for name in "a.pdf", "b/c/d.PDF", "b\\e.pdf", " f.pdf ":
            path = self.save(name)
            self.assertEqual(path, f"{self.output}/{name.strip()}".replace("\\", "/"))
            with open(path, "rb") as file:
                self.assertEqual(file.read(), b"%PDF <p>")
        self.assertEqual(self.base_url, f"{self.folder}/")

    def test_a_pdf_may_be_written_again(self):
        self.save("a.pdf")
        self.save("a.pdf")

    def test_other_names_are_refused(self):
        outside = ["/a.pdf", "../a.pdf", "b/../a.pdf", "./a.pdf", "b//a.pdf"]
        for name in [*outside, "", "a", "a.txt", "a.pdf/", "\0.pdf", "x\0/a.pdf", None]:
            with self.assertRaises(tool.ToolUserError, msg=name):
                self.save(name)
        self.assertEqual(os.listdir(self.folder), [])

    def test_links_are_not_followed(self):
        os.mkdir(self.output)
        os.symlink(self.folder, f"{self.output}/folder")
        os.symlink(f"{self.folder}/file.pdf", f"{self.output}/file.pdf")
        for name in "folder/a.pdf", "file.pdf", "\ud800.pdf":
            with self.assertRaises(tool.ToolUserError):
                self.save(name)
        self.assertEqual(os.listdir(self.folder), ["output"])

    def test_a_missing_package_is_named(self):
        with mock.patch.dict(sys.modules, weasyprint=None):
            with self.assertRaisesRegex(tool.ToolUserError, "weasyprint"):
                tool.save_as_pdf("<p>", self.output, "a.pdf")

    def test_an_error_of_the_package_is_not_shown(self):
        with self.assertRaisesRegex(tool.ToolUserError, "^The PDF could not be rendered"):
            module = types.SimpleNamespace(HTML=mock.Mock(side_effect=KeyError("internals")))
            with mock.patch.dict(sys.modules, weasyprint=module):
                tool.save_as_pdf("<p>", self.output, "a.pdf")


if __name__ == "__main__":
    unittest.main()
