"""Tests stand alone: they share code through `support/` and modules of their own folder, never through test files."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from feed_assets_tests.support.each_case import each_case

ROOT = Path(__file__).parents[1]
TESTS = "feed_assets_tests"
IMPORTED = re.compile(rf"from ({TESTS}[.\w]*) import (\w+)")
DOTTED = re.compile(rf"\b{TESTS}(?:\.[a-z_]\w*)+")


def modules_in(code: str) -> Iterator[str]:
    """Yield every module of the tests that code names: in imports, and in strings that other processes run."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and TESTS in node.value:
            yield from modules_in_text(node.value)


def modules_in_text(text: str) -> Iterator[str]:
    """Yield the modules that a string names: as a program, or else as dotted names."""
    try:
        yield from modules_in(text)
    except SyntaxError:
        yield from map(".".join, IMPORTED.findall(text))
    yield from DOTTED.findall(text)


def why_refused(name: str, folder: Path) -> str | None:
    """Return why a file of a folder may not import a module, or None if it may."""
    first, *rest = name.split(".")
    if name.startswith("."):
        return "is relative: expected the full name"
    if first == "conftest" or first.startswith("test_"):
        return "is a test file or a conftest"
    if first != TESTS:
        return None
    while rest and not (ROOT / TESTS / "/".join(rest)).with_suffix(".py").exists():
        rest.pop()  # A name that is imported from the module, or a folder.
    if not rest:
        return None
    if rest[-1] == "conftest" or rest[-1].startswith("test_"):
        return "is a test file or a conftest"
    owner = Path(TESTS, *rest[:-1])
    if owner in (folder, Path(TESTS, "support")):
        return None
    return f"belongs to {owner}: what several folders use is in {TESTS}/support"


def refused(code: str, file: Path) -> list[str]:
    """Return the imports of a file that are refused, each with the reason."""
    found = {name: why_refused(name, file.parent) for name in modules_in(code)}
    return [f"{file}: {name} {why}" for name, why in sorted(found.items()) if why]


def test_no_file_imports_from_a_test_file_or_from_a_helper_of_another_folder():
    files = [path for folder in (TESTS, "benchmarks") for path in sorted((ROOT / folder).rglob("*.py"))]
    files.remove(Path(__file__))  # Its examples are wrong on purpose.
    assert len(files) > 500
    assert [line for path in files for line in refused(path.read_text("utf-8"), path.relative_to(ROOT))] == []


@each_case(
    ("code", "why"),
    [
        ("from feed_assets_tests.cli.test_run import DAY", "is a test file"),
        ("from feed_assets_tests.kafka import test_faults", "is a test file"),
        ("import feed_assets_tests.kafka.test_faults as faults", "is a test file"),
        ("from feed_assets_tests.conftest import spark", "is a test file or a conftest"),
        ("from conftest import spark", "is a test file or a conftest"),
        ("from test_run import DAY", "is a test file"),
        ("from .test_run import DAY", "is relative"),
        ("from . import sample_runs", "is relative"),
        ("def run():\n    from feed_assets_tests.kafka.members import Member", "belongs to feed_assets_tests/kafka"),
        ("from feed_assets_tests.kafka import members", "belongs to feed_assets_tests/kafka"),
        ("PROGRAM = 'from feed_assets_tests.kafka import members; members.run()'", "belongs to"),
        ("PROGRAM = 'from feed_assets_tests.kafka import members; {body!r} {'", "belongs to"),
        ("command = ['-m', 'feed_assets_tests.kafka.members']", "belongs to"),
        ("patch.setattr('feed_assets_tests.kafka.members.MEMBER', 1)", "belongs to"),
        ("text = f'rows: feed_assets_tests.kafka.members:{name}'", "belongs to"),
    ],
)
def test_an_import_across_folders_is_refused(code, why):
    lines = refused(code, Path(TESTS, "cli/test_new.py"))
    assert lines
    assert all(why in line for line in lines)


@each_case(
    "code",
    [
        "from feed_assets_tests.support.servers import ROOT",
        "from feed_assets_tests.support import servers",
        "from feed_assets_tests.cli.sample_runs import DAY",
        "from feed_assets_tests.cli import sample_runs",
        "'see feed_assets_tests/kafka/test_faults.py'",
        "from feed_assets.testing import Harness",
    ],
)
def test_support_and_the_own_folder_may_be_imported(code):
    assert refused(code, Path(TESTS, "cli/test_new.py")) == []
