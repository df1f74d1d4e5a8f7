"""Helpers for scripts that run as tools.

A tool is a script with a function `run_tool(input_dir, output_dir)`. It returns a dict with `outputs`, `next_actions`
and `state`, or a str with HTML:

    from ringfence_tool import field, form, get_action_parts, list_input_files, markdown, table

    def run_tool(input_dir, output_dir):
        action_id, answers, state = get_action_parts()
        if action_id == "rename":
            return {"outputs": [markdown(f"The new name is **{answers['name']}**.")], "state": state}
        rows = [{"name": file["name"], "bytes": file["bytes"]} for file in list_input_files()]
        return {
            "outputs": [table(["name", "bytes"], rows, title="Files")],
            "next_actions": [form("rename", "Rename", [field("name", "New name", "string")])],
            "state": {"step": 1},
        }

Files that it writes below `output_dir` become downloads. What it prints is shown while it runs.

Functions that read return empty values for what is missing or malformed, and never raise. Functions that build outputs
and forms raise `ValueError` for what the server would refuse.
"""

import json
import os

TYPE_CHECKING = False  # True for type checkers. Importing `typing` would take longer than most scripts.
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Pairs = Iterable[str | Sequence[str] | Mapping[str, str]] | Mapping[str, str]

NOTICE_LEVELS = ("info", "warning", "error")
FIELD_KINDS = ("string", "text", "integer", "number", "boolean", "enum", "multi_enum")
KINDS_WITH_OPTIONS = ("enum", "multi_enum")


class ToolUserError(Exception):
    """Ends the run as failed, and shows this message to the user.

    The text of any other exception stays in the output of the run. Raise this one for mistakes that the user can
    correct, and keep paths and secrets out of the message.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(str(message).strip())

    @property
    def safe_message(self) -> str:
        """The message."""
        return str(self)


def read_inputs() -> "dict[str, object]":
    """Returns the values of the input form by field name; {} if there are none."""
    return _object(_variable("SKRIPTOTEKET_INPUTS"))


def read_input_manifest() -> "dict[str, object]":
    """Returns the manifest of the uploaded files as the server wrote it; {"files": []} if there is none.

    Use `list_input_files` unless you need keys that it leaves out.
    """
    manifest = _object(_variable("SKRIPTOTEKET_INPUT_MANIFEST"))
    return manifest if isinstance(manifest.get("files"), list) else {**manifest, "files": []}


def list_input_files() -> "list[dict[str, object]]":
    """Returns the uploaded files, each as {"name": str, "path": str, "bytes": int}; [] if there are none."""
    files = [file for file in read_input_manifest()["files"] if isinstance(file, dict)]
    return [
        {"name": file["name"], "path": file["path"], "bytes": file["bytes"]}
        for file in files
        if isinstance(file.get("name"), str) and isinstance(file.get("path"), str) and type(file.get("bytes")) is int
    ]


def read_action() -> "dict[str, object] | None":
    """Returns the submitted action as {"action_id": str, "input": dict, "state": dict}; None in a first run.

    The state is the one that the previous run returned. The action is in SKRIPTOTEKET_ACTION. If this variable does not
    exist, the file `action.json` among the input files is read.
    """
    action = _variable("SKRIPTOTEKET_ACTION")
    if "SKRIPTOTEKET_ACTION" not in os.environ:
        action = _file(os.path.join(os.environ.get("SKRIPTOTEKET_INPUT_DIR") or "/work/input", "action.json"))
    action = _object(action)
    action_id = action.get("action_id")
    if not isinstance(action_id, str) or not action_id.strip():
        return None
    return {
        "action_id": action_id.strip(),
        "input": _object(action.get("input")),
        "state": _object(action.get("state")),
    }


def get_action_parts() -> "tuple[str | None, dict[str, object], dict[str, object]]":
    """Returns (action_id, input, state) of the submitted action; (None, {}, {}) in a first run."""
    action = read_action()
    return (action["action_id"], action["input"], action["state"]) if action else (None, {}, {})


def read_memory() -> "dict[str, object]":
    """Returns what the server keeps for the user of this tool; {} if there is nothing."""
    return _object(_file(os.environ.get("SKRIPTOTEKET_MEMORY_PATH") or "/work/memory.json"))


def read_settings() -> "dict[str, object]":
    """Returns the settings of the user for this tool; {} if there are none."""
    return _object(read_memory().get("settings"))


def notice(level: str, message: str) -> "dict[str, object]":
    """Returns a short message. `level` is "info", "warning" or "error"."""
    if level not in NOTICE_LEVELS:
        raise ValueError(f"{level!r} is not a level: {', '.join(NOTICE_LEVELS)}")
    return {"kind": "notice", "level": level, "message": _not_blank("message", message)}


def markdown(text: str) -> "dict[str, object]":
    """Returns a text in Markdown."""
    return {"kind": "markdown", "markdown": _not_empty("text", text)}


def html(text: str) -> "dict[str, object]":
    """Returns an HTML page. It is shown without scripts, in a frame of its own."""
    return {"kind": "html_sandboxed", "html": _not_empty("text", text)}


def json_output(value: object, title: "str | None" = None) -> "dict[str, object]":
    """Returns a JSON value that can be browsed."""
    return {"kind": "json", "title": title, "value": value}


def table(
    columns: "Pairs", rows: "Iterable[Mapping[str, object] | Iterable[object]]", title: "str | None" = None
) -> "dict[str, object]":
    """Returns a table.

    columns: the columns in order. Each is a key that is its label too, a pair (key, label), or a dict with both. A dict
        {key: label} stands for all columns.
    rows: the rows in order. Each is a dict by column key, or a sequence with one value per column.

    Values other than str, int, float, bool and None are shown as their text.
    """
    columns = [{"key": key, "label": label} for key, label in _pairs("column", columns, "key")]
    keys = [column["key"] for column in columns]
    return {"kind": "table", "title": title, "columns": columns, "rows": [_row(keys, row) for row in rows]}


def form(
    action_id: str,
    label: str,
    fields: "Iterable[dict[str, object]]" = (),
    prefill: "Mapping[str, object] | None" = None,
) -> "dict[str, object]":
    """Returns a form for `next_actions`. Submitting it runs the tool again, with this `action_id`.

    fields: what `field` returns.
    prefill: first values, by field name.
    """
    fields, prefill = list(fields), dict(prefill or {})
    names = [field["name"] for field in fields]
    _no_duplicates("field", names)
    if not prefill.keys() <= set(names):
        raise ValueError(f"prefill has no field for {', '.join(sorted(map(str, prefill.keys() - set(names))))}")
    return {
        "action_id": _not_blank("action_id", action_id),
        "label": _not_blank("label", label),
        "kind": "form",
        "fields": fields,
        "prefill": prefill,
    }


def field(name: str, label: str, kind: str, options: "Pairs | None" = None) -> "dict[str, object]":
    """Returns a field of a form.

    kind: "string" (one line), "text" (several lines), "integer", "number", "boolean", "enum" (one of the options) or
        "multi_enum" (any number of them).
    options: for "enum" and "multi_enum". Each is a value that is its label too, a pair (value, label), or a dict with
        both. A dict {value: label} stands for all options.
    """
    if kind not in FIELD_KINDS:
        raise ValueError(f"{kind!r} is not a kind of field: {', '.join(FIELD_KINDS)}")
    made = {"name": _not_blank("name", name), "label": _not_blank("label", label), "kind": kind}
    if kind in KINDS_WITH_OPTIONS:
        made["options"] = [{"value": value, "label": text} for value, text in _pairs("option", options or (), "value")]
    elif options:
        raise ValueError(f"a field of kind {kind!r} has no options")
    return made


def save_as_pdf(html: str, output_dir: str, filename: str) -> str:
    """Renders HTML to a PDF below `output_dir`, and returns its path.

    `filename` is relative, ends with ".pdf", and may name folders, which are made. Links below `output_dir` are not
    followed. Relative addresses in the HTML start at the folder that holds `output_dir`, so `input/logo.png` is an
    uploaded file. Needs the package weasyprint in the image of the tool.
    """
    names = _pdf_names(filename)
    try:
        from weasyprint import HTML
    except (ImportError, OSError) as error:  # OSError: one of its native libraries is missing.
        raise ToolUserError(f"PDF files need the Python package weasyprint, which cannot be used: {error}") from error
    try:
        content = HTML(string=html, base_url=os.path.join(os.path.dirname(os.path.abspath(output_dir)), "")).write_pdf()
    except Exception as error:
        raise ToolUserError("The PDF could not be rendered. Check the HTML and CSS.") from error
    try:
        _write_below(output_dir, names, content)
    except (OSError, ValueError) as error:  # ValueError: a name is not Unicode.
        raise ToolUserError(f"The PDF {filename!r} could not be written: {error}") from error
    return os.path.join(output_dir, *names)


def _pdf_names(filename):
    path = str(filename).strip().replace("\\", "/")
    names = path.split("/")
    if not {"", ".", ".."}.isdisjoint(names) or "\0" in path or not path.lower().endswith(".pdf"):
        raise ToolUserError(f"{filename!r} is not a name for a PDF: it must be relative and end with .pdf.")
    return names


def _write_below(folder, names, content):
    """Writes a file through descriptors of its folders, so that no part of the way can be a link."""
    os.makedirs(folder, exist_ok=True)
    here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for name in names[:-1]:
            try:
                os.mkdir(name, dir_fd=here)
            except FileExistsError:
                pass
            below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=here)
            os.close(here)
            here = below
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        with open(os.open(names[-1], flags, 0o644, dir_fd=here), "wb") as file:
            file.write(content)
    finally:
        os.close(here)


def _variable(name):
    return _parse(os.environ.get(name, ""))


def _file(path):
    try:
        with open(path, "rb") as file:
            return _parse(file.read())
    except (OSError, ValueError):
        return None


def _parse(text):
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _object(value):
    return value if isinstance(value, dict) else {}


def _not_empty(what, text):
    if not isinstance(text, str) or not text:
        raise ValueError(f"{what} must be a str that is not empty")
    return text


def _not_blank(what, text):
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"{what} must be a str that is not blank")
    return text.strip()


def _no_duplicates(what, names):
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two {what}s are named {name!r}")


def _pairs(what, items, key):
    """Returns (key, label) for columns or options in any of their forms."""
    pairs = [_pair(item, key) for item in (items.items() if isinstance(items, dict) else items)]
    pairs = [(_not_blank(f"{key} of a {what}", name), _not_blank(f"label of a {what}", text)) for name, text in pairs]
    if not pairs:
        raise ValueError(f"at least one {what} is needed")
    _no_duplicates(what, [name for name, _ in pairs])
    return pairs


def _pair(item, key):
    if isinstance(item, str):
        return item, item
    if isinstance(item, dict):
        return item.get(key), item.get("label", item.get(key))
    name, text = item
    return name, text


def _row(keys, row):
    if not isinstance(row, dict):
        row = list(row)
        if len(row) != len(keys):
            raise ValueError(f"a row has {len(row)} values for {len(keys)} columns")
        row = dict(zip(keys, row))
    return {key: _cell(row[key]) for key in keys if key in row}


def _cell(value):
    return value if value is None or isinstance(value, (str, int, float)) else str(value)
