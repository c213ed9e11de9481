"""The how-to pages as their reader does them: files are written, commands run in order, and outputs compared."""

import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import quantiles
from weakref import WeakKeyDictionary

import pytest

from feed_assets import read
from feed_assets.cli.loaded_location import open_instance
from feed_assets.orchestration.execute import makers
from feed_assets.runs.maker import Maker
from feed_assets.testing import PlainMaker
from feed_assets_tests.support.page_commands import check_is_accepted, forget_modules
from feed_assets_tests.support.page_reader import BLOCK, Reader, lay_out, project_in, reader_in

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
def folder(home: Path, tmp_path: Path, empty_home: Path, empty_ledger: Path) -> Iterator[Path]:
    """Provide a new project `shop`, as `feed-assets init shop` makes it, with a home of its own."""
    project = project_in(tmp_path, empty_home, empty_ledger)
    with reader_in(project):
        yield project


def without_sample(project: Path) -> None:
    """Remove the tutorial's feed and dataset from a project."""
    (project / "shop" / "defs" / "sold.py").unlink()
    (project / "tests" / "test_sold.py").unlink()
    shutil.rmtree(project / ".feed_assets" / "blackboard")
    (project / ".feed_assets" / "blackboard").mkdir()


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
