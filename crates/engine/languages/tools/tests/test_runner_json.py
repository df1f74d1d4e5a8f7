"""Tests the conversion of results to JSON values."""

import collections
import dataclasses
import datetime
import decimal
import json
import os
import pathlib
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from runner_json import Failure, convert_result  # noqa: E402


def convert(value):
    state = convert_result({"state": {"value": value}})[2]
    json.dumps(state, allow_nan=False, ensure_ascii=False).encode()
    return state["value"]


def nested(depth, innermost):
    for _ in range(depth):
        innermost = [innermost]
    return innermost


class Conversion(unittest.TestCase):
    def test_json_values_stay_as_they_are(self):
        scalars = [None, True, False, 0, -5, 1.5, -0.0, 1e300, "", "å😀\0"]
        for value in [*scalars, [], {}, [1, "a", None], {"a": {"b": [True]}}]:
            self.assertEqual(repr(convert(value)), repr(value))

    def test_not_a_number_and_infinities_become_null(self):
        self.assertEqual(convert([float("nan"), float("inf"), float("-inf")]), [None, None, None])

    def test_integers_outside_64_bits_become_text(self):
        for number in 2**64 - 1, -(2**63):
            self.assertEqual(convert(number), number)
        for number in 2**64, -(2**63) - 1, 10**100:
            self.assertEqual(convert(number), str(number))

    def test_an_integer_too_long_for_text_has_a_placeholder(self):
        if hasattr(sys, "set_int_max_str_digits"):
            self.assertEqual(convert(10**10_000), "<int>")

    def test_lone_surrogates_are_replaced_and_pairs_joined(self):
        self.assertEqual(convert("a\ud800b"), "a\ufffdb")
        self.assertEqual(convert("\udcff"), "\ufffd")
        self.assertEqual(convert("\ud83d\ude00"), "😀")
        self.assertEqual(convert({"\ud800": "x"}), {"\ufffd": "x"})
        self.assertEqual(convert_result("<p>\udc80"), ([{"kind": "html_sandboxed", "html": "<p>\ufffd"}], [], None))

    def test_tuples_and_sets_become_lists(self):
        point = collections.namedtuple("Point", "x y")(1, 2)
        self.assertEqual(convert([(1, (2,)), point, frozenset([3])]), [[1, [2]], [1, 2], [3]])
        self.assertEqual(convert({"b", "c", "a"}), ["a", "b", "c"])
        self.assertEqual(convert({1, "a", None, (2, 3)}), ["a", 1, [2, 3], None])

    def test_keys_that_are_not_text_are_dropped_at_each_level(self):
        self.assertEqual(convert({1: 2, "a": {None: 1, (1,): 2, "b": {True: 1}}}), {"a": {"b": {}}})

    def test_other_objects_become_text(self):
        @dataclasses.dataclass
        class Point:
            x: int

        for value in [
            b"x",
            bytearray(b"y"),
            pathlib.Path("/a"),
            datetime.date(2024, 1, 2),
            datetime.datetime(2024, 1, 2, 3, 4),
            decimal.Decimal("1.10"),
            Point(1),
            1 + 2j,
            range(3),
            collections.deque([1]),
            int,
            ValueError("bad"),
        ]:
            self.assertEqual(convert(value), str(value))

    def test_containers_below_the_depth_become_text(self):
        self.assertEqual(convert_result({"state": {"a": nested(49, {"b": 1})}})[2], {"a": nested(49, "{'b': 1}")})
        self.assertEqual(convert(nested(48, {"b": 1})), nested(48, {"b": 1}))
        self.assertEqual(convert(nested(49, "text")), nested(49, "text"))

    def test_a_container_too_deep_for_text_has_a_placeholder(self):
        value = nested(100_000, 1)
        converted = convert(value)
        for _ in range(49):
            converted = converted[0]
        self.assertIsInstance(converted, str)
        while value != 1:  # Freeing it in one go can overflow the stack.
            value = value[0]

    def test_a_container_in_itself_ends_there(self):
        items, entries = [1], {"a": 1}
        items += [items, items]
        entries["self"] = entries
        entries["items"] = items
        self.assertEqual(convert(items), [1, "[...]", "[...]"])
        self.assertEqual(convert(entries), {"a": 1, "self": "{...}", "items": [1, "[...]", "[...]"]})

    def test_a_container_that_occurs_twice_is_converted_twice(self):
        item = [1]
        self.assertEqual(convert([item, item]), [[1], [1]])

    def test_too_many_values_fail(self):
        value = []
        for _ in range(40):
            value = [value, value]
        with self.assertRaisesRegex(Failure, "^The tool returned more than 1,000,000 values.$"):
            convert(value)


if __name__ == "__main__":
    unittest.main()
