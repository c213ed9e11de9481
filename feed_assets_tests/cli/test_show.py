"""Layout of command output: aligned columns, and nested values below them."""

import json
import sys
from datetime import UTC, datetime
from io import StringIO
from typing import Annotated

from feed_assets.cli.run_output import wrapped
from feed_assets.cli.show import Counted, Values, View, show


class Box(View):
    name: str
    open: bool
    weight: float | None = None
    labels: Annotated[tuple[str, ...], Counted] = ()
    within: "tuple[Box, ...]" = ()


def said(capsys, views, note=""):
    show(views, False, note)
    return capsys.readouterr().out.splitlines()


def test_columns_are_aligned_and_empty_ones_left_out(capsys):
    boxes = [Box(name="a", open=True), Box(name="longer", open=False, weight=2)]
    assert said(capsys, boxes) == [
        "name    open  weight  labels",
        "a       yes           0",
        "longer  no    2.000   0",
    ]


class Terminal(StringIO):
    """A stdout that stands for a terminal."""

    def isatty(self):
        return True


def test_a_terminal_gets_a_long_text_whole_and_wrapped_to_its_column(monkeypatch):
    monkeypatch.setenv("COLUMNS", "44")
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    show([Box(name="its header is a,b: expected a,c. Correct the schema", open=True)], False)
    assert terminal.getvalue().splitlines() == [
        "name                            open  labels",
        "its header is a,b: expected     yes   0",
        "a,c. Correct the schema",
    ]
    assert wrapped(f"FAILED  {'a wrong header ' * 4}") == "\n".join(
        ["FAILED  a wrong header a wrong header a", "        wrong header a wrong header"]
    )


def test_nested_values_are_printed_below_their_line(capsys):
    inner = Box(name="in", open=True, labels=("x", "y"))
    assert said(capsys, Box(name="out", open=False, within=(inner,)), "a note") == [
        "name  open  labels",
        "out   no    0",
        "  within",
        "    name  open  labels",
        "    in    yes   2",
        "a note",
    ]


def test_values_by_partition_have_the_key_as_first_column(capsys):
    found = Values.of(consumer="c", due={"2024-01-01": {"takes": 1}, "2024-01-02": {"takes": 12}})
    assert said(capsys, [found]) == [
        "consumer",
        "c",
        "  due",
        "    partition   takes",
        "    2024-01-01  1",
        "    2024-01-02  12",
    ]


def test_moments_are_in_utc_and_lines_of_text_one_by_one(capsys):
    found = Values.of(at=datetime(2024, 1, 1, 6, tzinfo=UTC), problems=("first", "second"))
    assert said(capsys, found) == ["at", "2024-01-01 06:00:00 UTC", "  problems", "    first", "    second"]


def test_an_empty_list_is_printed_as_nothing_or_as_the_note(capsys):
    assert said(capsys, []) == ["nothing"]
    assert said(capsys, [], "no update yet") == ["no update yet"]


def test_json_output_has_all_fields(capsys):
    show([Box(name="a", open=True, labels=("x",))], True)
    assert capsys.readouterr().out == (
        '[\n  {\n    "name": "a",\n    "open": true,\n    "weight": null,\n    "labels": [\n      "x"\n    ],\n'
        '    "within": []\n  }\n]\n'
    )


def test_numbers_that_json_cannot_hold_are_texts(capsys):
    """Write such numbers as text, since only Python reads them as JSON numbers."""

    def refuse(name):
        raise AssertionError(name)

    show(Values.of(a=float("nan"), b=[float("-inf")], c=1.5), True)
    assert json.loads(capsys.readouterr().out, parse_constant=refuse) == {"a": "NaN", "b": ["-Infinity"], "c": 1.5}
