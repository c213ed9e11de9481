"""Values of long calls are named: a reader need not count them."""

import ast
from pathlib import Path

import feed_assets

PACKAGE = Path(feed_assets.__file__).parent
MOST_POSITIONAL = 5
"""Most positional values of a call."""
OTHERS = ("sa.Table", "sa.Index", "op.create_table", "datetime")
"""Calls of any number of values, and of the parts of a time."""


def test_a_call_has_at_most_five_positional_values():
    long = [
        f"{file.relative_to(PACKAGE)}:{call.lineno} {ast.unparse(call.func)}"
        for file in sorted(PACKAGE.rglob("*.py"))
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and len(call.args) > MOST_POSITIONAL and ast.unparse(call.func) not in OTHERS
    ]
    assert long == []


def test_each_use_of_a_blackboard_of_the_services_names_its_feed():
    """Only `Services` reads its default blackboard: a dataset may be on another one, which `board_of(feed)` knows."""
    uses = [
        f"{file.relative_to(PACKAGE)}:{node.lineno} {ast.unparse(node)}"
        for file in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr == "board" and "services" in ast.unparse(node.value).lower()
    ]
    assert uses == []
