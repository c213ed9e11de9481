"""The web UI as a person meets it: `feed-assets ui` on a home of real ads, looked at in a headless Chromium.

There are no sensors: whatever is built was launched by clicks, or where there is no Chromium by the request that they
make; then the tests of pages are skipped. On failure the message names a screenshot.
"""

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import psutil
import pytest
from playwright.sync_api import Browser, Locator, Page, Playwright, expect, sync_playwright

from feed_assets.cli.processes import Started, free_port, group, is_free, wait_for_port
from feed_assets.core.feeds import Feed, Partition
from feed_assets.defs.ads import sample
from feed_assets.feeds import read
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.write import publish
from feed_assets_tests.integration.backfills import launch
from feed_assets_tests.servers import ROOT, family, lives, wait_until

DAY, GOOD, BAD = "2019-11-24", "men", "women"
PROJECT = """
import os
from pathlib import Path
import dagster as dg
from feed_assets.defs.ads import effectiveness as ads

if Path("looked_at").exists():  # by the command, before it starts anything
    os.environ["FEED_ASSETS_SPARK_REMOTE"]  # it tells its code location where the one warm Spark is
Path("looked_at").touch()
assets = [ads.shown_raw, ads.clicked_raw, ads.shown, ads.clicked, ads.effectiveness]
defs = dg.Definitions(assets=assets, executor=dg.in_process_executor)
"""
ASSETS = ("shown", "shown_rejects", "clicked", "clicked_rejects", "effectiveness")
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE = 120_000
"""Milliseconds until what a page should show counts as absent."""
BUILDS = 900_000
"""The same for the end of a backfill and the start of the servers: a few seconds, unless the machine does much else."""


@dataclass(frozen=True)
class Site:
    """The web UI, the home's blackboard, and the folder of both."""

    server: Started
    port: int
    board: Blackboard
    folder: Path


@dataclass(frozen=True)
class Pages:
    """The browser that looks at the site; screenshots go to the site's folder."""

    site: Site
    browser: Browser

    @contextmanager
    def page(self, path: str) -> Iterator[Page]:
        """A page of the UI; how it looked in the end is kept if the block fails."""
        page = self.browser.new_page(viewport={"width": 1500, "height": 1000})
        page.set_default_timeout(PATIENCE)
        # A fresh home is greeted, a second late, by a dialog that is in the way of clicks.
        page.add_init_script("localStorage.setItem('communityNux', JSON.stringify('1'))")
        try:
            page.goto(f"http://127.0.0.1:{self.site.port}{path}")
            yield page
        except BaseException as error:
            folder = self.site.folder
            picture = folder / f"{len(list(folder.glob('*.png')))}.png"
            page.screenshot(path=picture)
            error.add_note(f"how the page looked: {picture}")
            raise
        finally:
            page.close()


def program(playwright: Playwright) -> str | None:
    """The system's Chromium, or Playwright's own."""
    found = [path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))]
    path = [*found, playwright.chromium.executable_path][0]
    return path if Path(path).exists() else None


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser | None]:
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        if path := program(playwright):
            with playwright.chromium.launch(executable_path=path, args=QUIET) as browser:
                yield browser
        else:
            yield None


def drop(board: Blackboard) -> None:
    """A day of two campaigns; what was clicked in one of them is not what was shown."""
    clicked = {GOOD: sample.clicked_csv(DAY, GOOD), BAD: sample.clicked_csv(DAY, BAD).replace(b"bts-", b"lost-")}
    for campaign in (GOOD, BAD):
        for name, content in (("shown_raw", sample.shown_csv(DAY, campaign)), ("clicked_raw", clicked[campaign])):
            publish(board, partition(name, campaign), {"part-1.csv": content}, datetime.now(UTC))


def partition(name: str, campaign: str) -> Partition:
    return Partition(Feed.parse(f"ads/{name}/v1.0"), f"{DAY}/{campaign}")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder, port = tmp_path_factory.mktemp("web_ui"), free_port()
    (folder / "by_hand.py").write_text(PROJECT)
    board = Blackboard.open((folder / "home" / "blackboard").as_uri(), create=True)
    drop(board)
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("FEED_ASSETS_")]:
            patch.delenv(name)
        for name, value in {"DAGSTER_HOME": folder / "home", "PYTHONPATH": folder, "PYTHONWARNINGS": "ignore"}.items():
            patch.setenv(name, str(value))
        patch.chdir(folder)  # where there is no workspace.yaml
        command = f"from feed_assets.cli.ui import ui; ui({port}, 'by_hand')"
        with group("feed-assets ui", [sys.executable, "-c", command], folder / "ui.log") as server:
            wait_for_port(server, port, BUILDS / 1000)
            yield Site(server, port, board, folder)


@pytest.fixture(scope="module")
def pages(site: Site, browser: Browser | None) -> Pages:
    if browser is None:
        pytest.skip("no Chromium for the tests of the web UI: scripts/get_chromium.sh installs one")
    return Pages(site, browser)


@pytest.fixture(scope="module")
def built(site: Site, browser: Browser | None) -> Site:
    """The site after a backfill of the day has come to its end."""
    if browser:
        launch_by_clicks(Pages(site, browser))
    else:
        launch(site.port, [f"ads/{name}" for name in ASSETS], [f"{GOOD}|{DAY}", f"{BAD}|{DAY}"])
    with dg.DagsterInstance.get() as instance:
        wait_until(lambda: len(ended(instance)) == 2, "the end of the backfill", BUILDS / 1000, pause=1)
    return site


def ended(instance: dg.DagsterInstance) -> list[dg.DagsterRun]:
    return [*instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE]))]


def launch_by_clicks(pages: Pages) -> None:
    """In the graph: Materialize all, of the day and all campaigns."""
    with pages.page("/asset-groups") as page:
        page.get_by_role("button", name="Materialize all").click()
        dialog = page.get_by_role("dialog").filter(has_text="Partition selection")
        dialog.get_by_placeholder("ex: 2019-11-24").fill(DAY)
        dialog.get_by_role("button", name="All", exact=True).first.click()  # campaigns
        expect(dialog.get_by_text("2 partitions")).to_be_visible()
        dialog.get_by_role("button", name="Launch backfill").click()
        expect(dialog).to_be_hidden()


def node(page: Page, name: str) -> Locator:
    """An asset's box in the graph."""
    return page.locator("svg").get_by_text(name, exact=True).first


def test_the_graph_leads_from_the_raw_feeds_to_the_result(pages: Pages) -> None:
    with pages.page("/asset-groups") as page:
        lefts = []
        for name in ("clicked_raw", "clicked", "effectiveness"):
            expect(node(page, name)).to_be_visible()
            lefts.append(node(page, name).bounding_box()["x"])
        assert lefts == sorted(set(lefts))


def test_a_backfill_is_one_run_for_each_partition(built: Site) -> None:
    with dg.DagsterInstance.get() as instance:
        runs = instance.get_runs()
    assert len({run.tags["dagster/backfill"] for run in runs}) == 1
    assert sorted((run.tags["dagster/partition"], run.status.value) for run in runs) == [
        (f"{GOOD}|{DAY}", "SUCCESS"),
        (f"{BAD}|{DAY}", "FAILURE"),
    ]


def test_a_backfill_publishes_what_passes_its_gate_and_only_that(built: Site) -> None:
    newest = {each: read.latest(built.board, partition("effectiveness", each)).update for each in (GOOD, BAD)}
    assert newest[GOOD]
    assert newest[BAD] is None
    for name in ("shown", "shown_rejects", "clicked", "clicked_rejects"):
        assert all(read.latest(built.board, partition(name, each)).update for each in (GOOD, BAD)), name


def test_the_partitions_page_counts_what_is_there_and_what_failed(built: Site, pages: Pages) -> None:
    with pages.page("/assets/ads/effectiveness?view=partitions") as page:
        for words in ("Materialized (1)", "Failed (1)"):
            expect(page.get_by_text(words)).to_be_visible()


def test_a_failed_gate_shows_its_reason(built: Site, pages: Pages) -> None:
    """5 of the 11 clicks kept their impressions."""
    with pages.page("/assets/ads/effectiveness?view=checks&checkDetail=clicked_in_shown") as page:
        for words in (
            "This is a blocking asset check.",
            f"{BAD}|{DAY}",
            "clicked_in_shown: at least 95.0% of the rows of clicked must have their impression_id in shown; "
            "found 45.5%",
            "Mend the input or the function, then materialize this partition again.",
        ):
            expect(page.get_by_text(words)).to_be_visible()


def test_the_chart_is_drawn(built: Site, pages: Pages) -> None:
    with pages.page("/assets/ads/effectiveness?view=overview") as page:
        page.get_by_text("[Show Markdown]").click()
        chart = page.get_by_role("img", name="click-through rate")
        expect(chart).to_be_visible()
        assert chart.evaluate("image => [image.complete, image.naturalWidth]") == [True, 560]


def memory(processes: list[psutil.Process], is_java: bool) -> float:
    """How many GB these take, those of Java or the others."""
    return sum(each.memory_info().rss for each in processes if (each.name() == "java") is is_java) / 1e9


def test_the_ui_ends_with_all_it_started_and_leaves_nothing_behind(site: Site) -> None:
    """The last test of the site, which it ends."""
    process = site.server.process
    ours = family(process.pid)
    spark, python = memory(ours, is_java=True), memory(ours, is_java=False)
    assert 0 < spark < 1.5, "docs/operations.md says how much memory Spark takes"
    assert 0 < python < 2, "docs/operations.md says how much memory the Python processes take"
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert [each for each in ours if lives(each)] == []
    assert is_free(site.port)
    assert (site.folder / "home" / "dagster.yaml").read_text() == (ROOT / "dagster.yaml").read_text()
