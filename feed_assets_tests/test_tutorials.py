"""The tutorials as their reader does them: files are written, commands run in order, and outputs compared."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from feed_assets.cli.new_project import make_project
from feed_assets_tests.support.kafka_servers import Broker, Registry
from feed_assets_tests.support.page_reader import BLOCK, Reader, reader_in

DOCS = Path(__file__).parents[1] / "docs"
FIRST = DOCS / "tutorial.md"
PAGES = {page.stem: page.read_text(encoding="utf-8") for page in [FIRST, *sorted((DOCS / "tutorials").glob("*.md"))]}


@pytest.fixture
def folder(home: Path, tmp_path: Path) -> Iterator[Path]:
    """Provide the reader's new folder, with no home but those of the projects in it."""
    new = tmp_path / "reader"
    new.mkdir()
    with reader_in(new):
        yield new


@pytest.mark.parametrize("name", [name for name in PAGES if "kafka" not in name])
@pytest.mark.usefixtures("spark")
def test_a_tutorial_does_what_it_says(name: str, folder: Path) -> None:
    Reader().follow(PAGES[name])


def test_the_first_tutorial_shows_the_files_that_init_makes(tmp_path: Path) -> None:
    project = make_project("shop", tmp_path)
    files = {title: text for _, title, _, text in BLOCK.findall(PAGES[FIRST.stem]) if (project / title).is_file()}
    assert files == {title: (project / title).read_text(encoding="utf-8") for title in files}
    assert "shop/defs/sold.py" in files


@pytest.fixture
def stopped_connector(folder: Path) -> Iterator[None]:
    """End the connector that the tutorial has started in the background, also if the test fails."""
    yield
    for file in folder.rglob("connector.pid"):
        with suppress(ProcessLookupError):
            os.kill(int(file.read_text()), signal.SIGKILL)


@pytest.mark.usefixtures("stopped_connector")
def test_the_tutorial_of_kafka_does_what_it_says(folder: Path, broker: Broker, registry: Registry) -> None:
    servers = {"localhost:9092": broker.servers, "http://localhost:8080/apis/ccompat/v7": registry.url}
    Reader(servers).follow(PAGES["kafka-to-table"])
