"""The how-to pages as their reader does them: files are written, commands run in order, and outputs compared.

A block `sh` is run, a block `bash` is only parsed: it needs servers, packages or rights that a test does not have.
"""

import configparser
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import quantiles
from weakref import WeakKeyDictionary

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from dagster.components.core import load_defs

from feed_assets import read
from feed_assets.cli.loaded_location import open_instance
from feed_assets.cli.new_project import make_project
from feed_assets.orchestration.execute import makers
from feed_assets.runs.maker import Maker
from feed_assets.settings import settings
from feed_assets.testing import PlainMaker
from feed_assets_tests.support.page_commands import check_is_accepted, forget_modules, lines_of, run

FOLDER = Path(__file__).parents[1] / "docs" / "how-to"
PAGES = {page.stem: page.read_text(encoding="utf-8") for page in sorted(FOLDER.glob("*.md"))}
INDEX = PAGES.pop("index", "")
BY_SPARK = {
    "csv-delimiter",
    "json-nested",
    "reject-rows",
    "load-duckdb",
    "read-without-spark",
    "test-spark",
    "unique-references",
}
"""Pages whose runs make their rows with Spark. In all others a run makes one row without calling the function."""
WITH_SAMPLE = re.compile(r"shop/orders|shop/sold|shop\.defs\.sold")
"""Words of the project of the tutorial. A page without them begins without its feed, dataset and sample."""
BLOCK = re.compile(r"^```(\w+)(?: title=(\S+))?(?: exit=(\d))?\n(.*?)^```", re.MULTILINE | re.DOTALL)


class OfEveryInstance(WeakKeyDictionary):
    """The makers of all Dagster instances. One that has none of its own makes rows without Spark."""

    def __contains__(self, instance: object) -> bool:
        return True

    def get(self, instance, default=None) -> Maker:
        return super().get(instance, default) or PlainMaker()


@pytest.fixture(scope="module")
def empty_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a home with the files of a new Dagster instance, which takes a second to make."""
    folder = tmp_path_factory.mktemp("instance")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("DAGSTER_HOME", str(folder))
        open_instance().dispose()
    return folder


@pytest.fixture
def folder(
    home: Path, tmp_path: Path, empty_home: Path, empty_ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """Provide a new project `shop`, as `feed-assets init shop` makes it, with a home of its own."""
    before = dict(os.environ)
    monkeypatch.delenv("DAGSTER_HOME")
    monkeypatch.setattr(sys, "path", [*sys.path])
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    monkeypatch.setattr(load_defs, "get_library_json_enriched_defs", lambda tree: dg.Definitions(component_tree=tree))
    project = make_project("shop", tmp_path)
    shutil.copytree(empty_home, project / ".feed_assets", dirs_exist_ok=True)
    shutil.copyfile(empty_ledger, project / ".feed_assets" / "ledger.db")
    monkeypatch.chdir(project)
    settings.cache_clear()
    yield project
    forget_modules()
    os.environ.clear()
    os.environ.update(before)
    settings.cache_clear()


def without_sample(project: Path) -> None:
    """Remove the tutorial's feed and dataset from a project."""
    (project / "shop" / "defs" / "sold.py").unlink()
    (project / "tests" / "test_sold.py").unlink()
    shutil.rmtree(project / ".feed_assets" / "blackboard")
    (project / ".feed_assets" / "blackboard").mkdir()


class Reader:
    """A reader who does what a page says, block by block, in the current folder."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        """The output since the last block of output."""

    def follow(self, page: str) -> None:
        """Do all that a page says."""
        does = {"sh": self.run, "bash": self.parse, "text": self.compare}
        for language, title, code, text in BLOCK.findall(page):
            if title == "layout":
                lay_out(text)
            elif title:
                Path(title).parent.mkdir(parents=True, exist_ok=True)
                Path(title).write_text(text, encoding="utf-8")
            elif language in does:
                does[language](text, int(code or 0))
            else:
                check_form(language, text)

    def run(self, text: str, code: int) -> None:
        """Run the commands of a block, each of which has to end with this exit code."""
        for command in lines_of(text):
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
        """Compare a block of output with what was printed since the last one."""
        for line in text.splitlines():
            assert any(is_printed(line, each) for each in self.lines), f"{line!r} is not in {self.lines}"
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


def check_definitions() -> None:
    """Load the project, so that each declaration of a page is one that Dagster and feed_assets accept."""
    forget_modules()
    sys.path.insert(0, str(Path.cwd()))
    from shop.definitions import defs  # pyright: ignore[reportMissingImports]

    assert defs().resolve_asset_graph() is not None


def follow_in(project: Path, name: str) -> None:
    """Do what a page says in a project, and load what it has declared."""
    if not WITH_SAMPLE.search(PAGES[name]):
        without_sample(project)
    Reader().follow(PAGES[name])
    if (project / "shop" / "definitions.py").exists():
        os.chdir(project)
        check_definitions()


def test_what_the_scala_page_lays_out_is_an_update_with_the_rows_of_its_parts(folder: Path) -> None:
    (text,) = [text for _, title, _, text in BLOCK.findall(PAGES["give-feed-scala"]) if title == "layout"]
    lay_out(text)
    data = read("partner/prices/v1.0", "2025-06-01", blackboard=(folder / ".feed_assets" / "blackboard").as_uri())
    assert (data.update_id, data.to_arrow().num_rows) == ("20250602.060000", 2)


def test_the_index_lists_each_page_once_by_its_title() -> None:
    titles = {f"{name}.md": text.partition("\n")[0].removeprefix("# ") for name, text in PAGES.items()}
    listed = re.findall(r"^- \[(.+)\]\((.+)\)$", INDEX, re.MULTILINE)
    assert sorted(listed) == sorted((title, name) for name, title in titles.items())


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("feed-assets run --until-done", "--until-done"),
        ("feed-assets feed publish", "lacks"),
        ("feed-assets feed publsh shop/raw/v1.0", "publsh"),
        ("cd x && feed-assets events pause", "lacks"),
        ("export FEED_ASSETS_MAX_REQUESTS=many", "FEED_ASSETS_MAX_REQUESTS"),
    ],
)
def test_a_command_that_is_only_parsed_is_refused(
    command: str, reason: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Exception, match=reason):
        check_is_accepted(command, monkeypatch)


def test_sentences_of_how_to_pages_are_short() -> None:
    prose = [re.sub(r"^```.*?^```|^[|#].*?$|^See also.*\Z", "\n\n", text, flags=re.M | re.S) for text in PAGES.values()]
    sentences = [each for text in prose for each in re.split(r"(?<=[.!?:;])\s+|\n\s*\n", text)]
    lengths = quantiles([words for each in sentences if (words := len(each.split())) > 2], n=100)
    assert (lengths[49] <= 15, lengths[89] <= 28) == (True, True), lengths


@pytest.mark.parametrize("name", [name for name in PAGES if name not in BY_SPARK])
def test_a_how_to_page_does_what_it_says(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(makers, "_MAKERS", OfEveryInstance())
    follow_in(folder, name)


@pytest.mark.parametrize("name", sorted(BY_SPARK & PAGES.keys()))
@pytest.mark.usefixtures("spark")
def test_a_how_to_page_with_rows_of_spark_does_what_it_says(name: str, folder: Path) -> None:
    follow_in(folder, name)
