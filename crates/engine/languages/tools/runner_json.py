"""Converts what a tool returned to JSON values.

Any object may be in it, so this uses no method that a class of the tool can override, except for `str()`.
"""

import json

VALUES_MAX = 1_000_000  # in one result; far more than any policy keeps
DEPTH_MAX = 50
INTEGERS = range(-(2**63), 2**64)  # what readers of JSON keep exactly
INFINITY = float("inf")
CONTAINERS = dict, list, tuple, set, frozenset


class Failure(Exception):
    """The tool failed, and the text tells its user why."""


def convert_result(returned):
    """Returns outputs, next actions and state."""
    if is_a(str, returned):
        html = clean(returned)
        return [{"kind": "html_sandboxed", "html": html}] if html else [], [], None
    if not is_a(dict, returned):
        raise Failure(f"The tool returned {type_name(returned)}; it must return a dict, or a str with HTML.")
    outputs, next_actions, state = (dict.get(returned, key) for key in ("outputs", "next_actions", "state"))
    converter = Converter()
    return converter.objects(outputs), converter.objects(next_actions), converter.object(state)


class Converter:
    def __init__(self):
        self.values = 0  # converted so far
        self.entered = set()  # ids of the containers around the current value

    def object(self, value):
        return self.convert(value) if is_a(dict, value) else None

    def objects(self, values):
        """Converts a list of dicts. Drops what is not a dict."""
        return [self.convert(value) for value in list.copy(values) if is_a(dict, value)] if is_a(list, values) else []

    def convert(self, value, depth=0):
        self.values += 1
        if self.values > VALUES_MAX:
            raise Failure(f"The tool returned more than {VALUES_MAX:,} values.")
        if value is None or type(value) is bool:
            return value
        if is_a(str, value):
            return clean(value)
        if is_a(int, value):
            number = int.__pos__(value)
            return number if number in INTEGERS else text_of(number)
        if is_a(float, value):
            number = float.__pos__(value)
            return number if -INFINITY < number < INFINITY else None
        if depth >= DEPTH_MAX or not is_a(CONTAINERS, value):
            return text_of(value)
        if id(value) in self.entered:
            return "{...}" if is_a(dict, value) else "[...]"  # as Python prints it
        self.entered.add(id(value))
        converted = self.convert_container(value, depth + 1)
        self.entered.discard(id(value))
        return converted

    def convert_container(self, value, depth):
        if is_a(dict, value):
            entries = list(dict.items(value))
            return {clean(key): self.convert(item, depth) for key, item in entries if is_a(str, key)}
        base = next(base for base in CONTAINERS if is_a(base, value))
        items = [self.convert(item, depth) for item in list(base.__iter__(value))]
        if base in (set, frozenset):  # Their order differs from process to process.
            items.sort(key=lambda item: json.dumps(item, sort_keys=True))
        return items


def is_a(classes, value):
    """Like isinstance, which a class of the tool can mislead."""
    return issubclass(type(value), classes)


def clean(text):
    """Joins pairs of surrogates and replaces lone ones: UTF-8 has neither."""
    text = str.__str__(text)
    try:
        text.encode()
        return text
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def text_of(value):
    try:
        return clean(str(value))
    except BaseException:
        return f"<{type_name(value)}>"


def type_name(value):
    return clean(type.__dict__["__name__"].__get__(type(value)))
