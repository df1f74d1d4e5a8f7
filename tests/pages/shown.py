"""Whether what came is what a page shows. `…` stands for anything, and so do times and what is measured."""

import json
import re

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
# Numbers that are others each time.
MEASURED = {"duration_ms", "peak_memory_mb", "cpu_time_ms", "sequence", "iat", "exp"}
REST = "…"


def values(text):
    """Returns the values that a block of JSON shows, one after the other."""
    # Outside of a text, a lone `…` is the rest of an object or a list, or a value.
    parts = re.split(r'("(?:[^"\\]|\\.)*")', text)
    parts[::2] = [re.sub(r"(?<=[{,])(\s*)…", r'\1"…": "…"', part) for part in parts[::2]]
    text, found = "".join(parts).strip(), []
    while text:
        value, end = json.JSONDecoder().raw_decode(text)
        found.append(value)
        text = text[end:].strip()
    return found


def written(text):
    """Returns every JSON object that was written, whatever stands around it."""
    found, at = [], 0
    while (at := text.find("{", at)) >= 0:
        try:
            value, at = json.JSONDecoder().raw_decode(text, at)
            found.append(value)
        except json.JSONDecodeError:
            at += 1
    return found


def is_like(shown, came, name=""):
    if isinstance(shown, dict) and isinstance(came, dict):
        if REST not in shown and shown.keys() != came.keys():
            return False
        named = [key for key in shown if key != REST]
        return all(key in came and is_like(shown[key], came[key], key) for key in named)
    if isinstance(shown, list) and isinstance(came, list):
        return len(shown) == len(came) and all(map(is_like, shown, came))
    if isinstance(shown, str) and isinstance(came, str):
        return line_pattern(shown).fullmatch(came) is not None
    if name in MEASURED:
        return type(shown) is type(came)
    return type(shown) is type(came) and shown == came


def line_pattern(shown):
    """A text with `…` and times in it, as an expression."""
    parts = [TIME.pattern if TIME.fullmatch(part) else ".*".join(map(re.escape, part.split(REST)))
             for part in re.split(f"({TIME.pattern})", shown)]
    return re.compile("".join(parts), re.DOTALL)


def missing_lines(shown, came):
    """Returns the lines that a page shows and that did not come in their order."""
    lines, missing = iter(came.splitlines()), []
    for line in filter(None, map(str.strip, shown)):
        if line.startswith("{"):
            is_there = any(is_like(values(line)[0], value) for value in written(came))
        else:
            is_there = any(line_pattern(line).fullmatch(it.strip()) for it in lines)
        if not is_there:
            missing.append(line)
            lines = iter(came.splitlines())
    return missing
