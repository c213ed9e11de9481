"""A reader of a page of the docs, who does what its blocks of code say, in the order of the page.

A block `sh` is run, a block `bash` is only parsed: it needs servers, packages or rights that a test does not have.
"""

import configparser
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from dagster._core.storage.event_log.sqlite import sqlite_event_log
from dagster.components.core import load_defs

from feed_assets.cli.new_project import make_project
from feed_assets.settings import settings
from feed_assets_tests.support.page_commands import check_is_accepted, forget_modules, lines_of, run

BLOCK = re.compile(r"^```(\w+)(?: title=(\S+))?(?: exit=(\d))?\n(.*?)^```", re.MULTILINE | re.DOTALL)


@contextmanager
def reader_in(folder: Path) -> Iterator[None]:
    """Make a folder the current one of a reader who has no home yet. Restore what its commands change."""
    before, path = dict(os.environ), [*sys.path]
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("DAGSTER_HOME")
        patch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        patch.setattr(sqlite_event_log, "stamp_alembic_rev", lambda *_, **__: None)  # each run would read all scripts
        patch.setattr(load_defs, "get_library_json_enriched_defs", lambda tree: dg.Definitions(component_tree=tree))
        patch.chdir(folder)
        settings.cache_clear()
        yield
        forget_modules()
    sys.path[:] = path
    os.environ.clear()
    os.environ.update(before)
    settings.cache_clear()


def project_in(folder: Path, empty_home: Path, empty_ledger: Path) -> Path:
    """Make a project `shop` in a folder, as `feed-assets init shop` does, with a home that has been opened before."""
    project = make_project("shop", folder)
    shutil.copytree(empty_home, project / ".feed_assets", dirs_exist_ok=True)
    shutil.copyfile(empty_ledger, project / ".feed_assets" / "ledger.db")
    return project


class Reader:
    """A reader who does what a page says, block by block, in the current folder."""

    def __init__(self, addresses: Mapping[str, str] = MappingProxyType({})) -> None:
        self.lines: list[str] = []
        """The output since the last block of output."""
        self.addresses = addresses
        """The servers of a test, by the addresses that the page has for them."""

    def follow(self, page: str) -> None:
        """Do all that a page says."""
        does = {"sh": self.run, "bash": self.parse, "text": self.compare}
        for language, title, code, text in BLOCK.findall(page):
            if title == "layout":
                lay_out(text)
            elif title:
                Path(title).parent.mkdir(parents=True, exist_ok=True)
                Path(title).write_text(self.here(text), encoding="utf-8")
            elif language in does:
                does[language](text, int(code or 0))
            else:
                check_form(language, text)

    def here(self, text: str) -> str:
        """Return a text with the addresses of the test's servers."""
        for theirs, address in self.addresses.items():
            text = text.replace(theirs, address)
        return text

    def run(self, text: str, code: int) -> None:
        """Run the commands of a block, each of which has to end with this exit code."""
        for command in lines_of(self.here(text)):
            ended, output = run(command)
            print(f"$ {command}\n{output}")  # noqa: T201 - pytest shows it if the page fails
            assert ended == code, f"{command}: {ended}\n{output}"
            self.lines += output.splitlines()

    def parse(self, text: str, _: int) -> None:
        """Only parse the commands of a block."""
        with pytest.MonkeyPatch.context() as environment:
            for command in lines_of(text):
                check_is_accepted(command, environment)

    def compare(self, text: str, _: int) -> None:
        """Compare a block of output with what was printed since the last one: its lines have to be there, in order."""
        rest = iter(self.lines)
        for line in text.splitlines():
            assert any(is_printed(line, each) for each in rest), f"{line!r} is not in its place in {self.lines}"
        self.lines.clear()


def lay_out(text: str) -> None:
    """Write the objects that a page lists to the blackboard: each line has a key, and of a manifest its content."""
    for line in text.splitlines():
        key, *content = line.split()
        path = Path(".feed_assets", "blackboard", key)
        path.parent.mkdir(parents=True, exist_ok=True)
        if content:
            path.write_text(*content, encoding="utf-8")
        else:
            pq.write_table(pa.table({"item": ["lemon"], "price": [1.5]}), path)


def is_printed(line: str, output: str) -> bool:
    """Return True if a line of output is the page's, where `…` stands for any text, and blanks for any blanks."""
    pattern = r"\s+".join(re.escape(word).replace("…", ".*") for word in line.split())
    return re.fullmatch(rf"\s*{pattern}\s*", output) is not None


def check_form(language: str, text: str) -> None:
    """Raise an error if a block is not of its language. Scala and SQL have no parser here."""
    if language == "yaml":
        yaml.safe_load(text)
    elif language == "json":
        json.loads(text)
    elif language == "ini":
        configparser.ConfigParser(strict=False, interpolation=None).read_string(text)
    else:
        assert language in {"scala", "sql"}, f"nothing checks a block of {language}"
