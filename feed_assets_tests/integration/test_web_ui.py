"""The web UI as a person meets it: `feed-assets ui` on a home of real ads, seen by a headless Chromium.

There are no sensors: every build was launched by clicks. Without Chromium the same request launches it, and the tests
of pages are skipped. On failure the message names a screenshot.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import dagster as dg
import grpc
import psutil
import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright
from pyspark.sql.types import StringType, StructField, StructType

from feed_assets.cli.processes import free_port, group, is_free
from feed_assets.core.markdown import without_links
from feed_assets.feeds import read
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.orchestration.decide.run_blocks import RANGE_END, RANGE_START
from feed_assets.spark.preview import markdown
from feed_assets_tests.integration.neighbours import (
    attacked,
    attacker,
    commanded_by_itself,
    listening,
    open_to_others,
    refusal_of_spark,
)
from feed_assets_tests.integration.web_site import (
    ASSETS,
    BAD,
    BUILDS,
    DAY,
    GOOD,
    LIBRARIES,
    PATIENCE,
    PROJECT,
    QUIET,
    STRANGER,
    Pages,
    Site,
    drop,
    partition,
    program,
)
from feed_assets_tests.support.servers import ROOT, family, lives, wait_until
from feed_assets_tests.support.ui_backfills import launch


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser | None]:
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        if path := program(playwright):
            with playwright.chromium.launch(executable_path=path, args=QUIET) as browser:
                yield browser
        else:
            yield None


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder, port = tmp_path_factory.mktemp("web_ui"), free_port()
    (folder / "by_hand.py").write_text(PROJECT)
    for name in LIBRARIES:
        (folder / f"{name}.py").write_text(STRANGER)
    board = Blackboard.open((folder / "home" / "blackboard").as_uri(), create=True)
    drop(board)
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("FEED_ASSETS_")]:
            patch.delenv(name)
        for name, value in {"DAGSTER_HOME": folder / "home", "PYTHONWARNINGS": "ignore"}.items():
            patch.setenv(name, str(value))
        patch.chdir(folder)  # where there is no workspace.yaml
        command = f"from feed_assets.cli.ui import ui; ui({port}, 'by_hand')"
        with group("feed-assets ui", [sys.executable, "-P", "-c", command], folder / "ui.log") as server:
            site = Site(server, port, board, folder)
            wait_until(lambda: server.check() or "?token=" in site.said(), "the web UI", BUILDS / 1000)
            yield site


@pytest.fixture(scope="module")
def pages(site: Site, browser: Browser | None) -> Pages:
    if browser is None:
        pytest.skip("no Chromium for the tests of the web UI: scripts/get_chromium.sh installs one")
    return Pages(site, browser)


@pytest.fixture(scope="module")
def built(site: Site, browser: Browser | None) -> Site:
    """Launch a backfill of the day, and return the site once it has ended."""
    if browser:
        launch_by_clicks(Pages(site, browser))
    else:
        launch(site.port, [f"ads/{name}" for name in ASSETS], [f"{GOOD}|{DAY}", f"{BAD}|{DAY}"], site.cookie)
    with dg.DagsterInstance.get() as instance:
        wait_until(lambda: len(ended(instance)) == 1, "the end of the backfill", BUILDS / 1000, pause=1)
    return site


def ended(instance: dg.DagsterInstance) -> list[dg.DagsterRun]:
    return [*instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE]))]


def launch_by_clicks(pages: Pages) -> None:
    """Click "Materialize all" in the graph, for the day and all campaigns."""
    with pages.page("/asset-groups") as page:
        page.get_by_role("button", name="Materialize all").click()
        dialog = page.get_by_role("dialog").filter(has_text="Partition selection")
        dialog.get_by_placeholder("ex: 2019-11-24").fill(DAY)
        dialog.get_by_role("button", name="All", exact=True).first.click()  # campaigns
        expect(dialog.get_by_text("2 partitions")).to_be_visible()
        dialog.get_by_role("button", name="Launch backfill").click()
        expect(dialog).to_be_hidden()


def node(page: Page, name: str) -> Locator:
    """Return an asset's box in the graph."""
    return page.locator("svg").get_by_text(name, exact=True).first


def test_the_graph_leads_from_the_raw_feeds_to_the_result(pages: Pages) -> None:
    with pages.page("/asset-groups") as page:
        lefts = []
        for name in ("clicked_raw", "clicked", "effectiveness"):
            expect(node(page, name)).to_be_visible()
            lefts.append(node(page, name).bounding_box()["x"])
        assert lefts == sorted(set(lefts))


def test_backfill_of_neighbours_is_one_run_and_fails_if_one_fails(built: Site) -> None:
    with dg.DagsterInstance.get() as instance:
        (run,) = instance.get_runs()
    assert "dagster/backfill" in run.tags
    assert {run.tags[RANGE_START], run.tags[RANGE_END]} == {f"{GOOD}|{DAY}", f"{BAD}|{DAY}"}
    assert run.status is dg.DagsterRunStatus.FAILURE


def test_ui_prints_each_build_and_no_output_of_its_processes(built: Site) -> None:
    def builds(word: str) -> list[str]:
        return [line for line in built.said().splitlines() if line.startswith(f"{word}  ads/effectiveness ")]

    wait_until(lambda: builds("built ") and builds("FAILED"), "the lines of both partitions", 120)
    assert f" {DAY}/{BAD}: clicked_in_shown: at least 95.0%" in builds("FAILED")[0]
    assert [line for line in built.said().splitlines() if re.search("DEBUG|INFO|Warning", line)] == []
    assert "DEBUG" in (built.folder / "home" / "ui" / "daemon.log").read_text(), "it is there"


def test_backfill_publishes_only_partitions_that_pass_their_gate(built: Site) -> None:
    newest = {each: read.latest(built.board, partition("effectiveness", each)).update for each in (GOOD, BAD)}
    assert newest[GOOD]
    assert newest[BAD] is None
    for name in ("shown", "shown_rejects", "clicked", "clicked_rejects"):
        assert all(read.latest(built.board, partition(name, each)).update for each in (GOOD, BAD)), name


def test_partitions_page_counts_materialized_and_failed_partitions(built: Site, pages: Pages) -> None:
    with pages.page("/assets/ads/effectiveness?view=partitions") as page:
        for words in ("Materialized (1)", "Failed (1)"):
            expect(page.get_by_text(words)).to_be_visible()


def test_a_failed_gate_shows_its_reason(built: Site, pages: Pages) -> None:
    """Only 5 of the 11 clicks kept their impressions."""
    with pages.page("/assets/ads/effectiveness?view=checks&checkDetail=clicked_in_shown") as page:
        expect(page.get_by_text("This is a blocking asset check.")).to_be_visible()
        # One run built both partitions: the overview shows the one that Dagster counts as last, which may be the good
        # one.
        page.get_by_role("tab", name="Execution history").click()
        for words in (
            f"{BAD}|{DAY}",
            "clicked_in_shown: at least 95.0% of the rows of clicked must have their impression_id in shown; "
            "found 45.5%",
        ):
            expect(page.get_by_text(words)).to_be_visible()
        failed = page.get_by_role("row").filter(has_text=f"{BAD}|{DAY}")
        failed.get_by_role("cell").last.get_by_role("button").click()  # its metadata
        what_to_do = page.get_by_text("Correct the input or the function, then materialize this partition again.")
        expect(what_to_do).to_be_visible()


def test_asset_page_draws_the_chart(built: Site, pages: Pages) -> None:
    with pages.page("/assets/ads/effectiveness?view=overview") as page:
        page.get_by_text("[Show Markdown]").click()
        chart = page.get_by_role("img", name="click-through rate")
        expect(chart).to_be_visible()
        assert chart.evaluate("image => [image.complete, image.naturalWidth]") == [True, 560]


def test_foreign_names_and_values_stay_plain_text_on_a_page(built: Site, pages: Pages) -> None:
    name = '<img src="https://evil.example/a.png" onerror="window.ran = 1">'
    value = "![b](https://evil.example/b.png)"
    shown = markdown(StructType([StructField(name, StringType())]), [{"number": 0, "texts": [value]}])
    metadata = {"preview": dg.MetadataValue.md(shown)}
    reason = without_links("late: ![c](https://evil.example/c.png)")
    raw = dg.AssetMaterialization(["ads", "clicked_raw"], reason, metadata, f"{GOOD}|{DAY}")
    with dg.DagsterInstance.get() as instance:
        instance.report_runless_asset_event(raw)
    with pages.page("/assets/ads/clicked_raw?view=overview") as page:
        requested = []
        page.on("request", lambda request: requested.append(request.url))
        for text in ("<img src=", 'onerror="window.ran = 1">', "![b]("):  # Addresses in them are links.
            expect(page.get_by_text(text)).to_be_visible()
        page.goto(page.url.replace("overview", "events"))
        expect(page.get_by_text("late: ![c](").first).to_be_visible()
        assert page.evaluate("window.ran") is None
        assert not [url for url in requested if "evil" in url]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_page_of_another_port_cannot_command_the_ui_with_the_users_cookie(built: Site, pages: Pages, host):
    """Browsers treat `127.0.0.1` as one site, whatever the port, and send the cookie."""
    with attacker(built.port) as port, pages.page("/") as page, dg.DagsterInstance.get() as instance:
        assert commanded_by_itself(page, f"own-{host}") == (200, "open")
        page.goto(f"http://{host}:{port}/")
        ends = attacked(page)
        keys = instance.event_log_storage.get_concurrency_keys()
        assert f"own-{host}" in keys, "the command of the attack is one"
        assert keys & {"image", "plain", "tricky", "json", "form"} == set()
        assert {"json: failed", "image: error", "socket: error"} <= ends


def test_visitor_without_a_token_is_asked_for_it(site: Site, browser: Browser | None, pages: Pages) -> None:
    page = pages.browser.new_page()
    try:
        answer = page.goto(f"http://127.0.0.1:{site.port}/asset-groups")
        assert answer.status == 403
        expect(page.get_by_text("Open the address that `feed-assets ui` printed")).to_be_visible()
        page.get_by_label("Token").fill(site.token)
        page.get_by_role("button").click()
        expect(node(page, "effectiveness")).to_be_visible()
        assert page.url == f"http://127.0.0.1:{site.port}/asset-groups"
    finally:
        page.close()


def test_every_listening_port_requires_authentication(built: Site) -> None:
    """The table in docs/security.md lists what listens."""
    ours = family(built.server.process.pid)
    found = listening(ours)
    assert {ip for ip, _ in found} == {"127.0.0.1"}
    others = {address: each.name() for address, each in found.items() if address[1] != built.port}
    assert set(others.values()) <= {"java", "python", "python3"}
    web = found["127.0.0.1", built.port]
    remote = web.environ()["FEED_ASSETS_SPARK_REMOTE"]
    assert ("127.0.0.1", int(remote.rpartition(":")[2])) in others
    assert refusal_of_spark(remote) is grpc.StatusCode.UNAUTHENTICATED
    (java,) = {each for each in found.values() if each.name() == "java"}
    properties = java.cmdline()[java.cmdline().index("--properties-file") + 1]
    assert "spark.authenticate=true\n" in Path(properties).read_text()
    pythons = [each for address, each in found.items() if each is not web and address in others and each != java]
    assert all("feed_assets.spark.python_workers" in each.cmdline() for each in pythons)
    assert open_to_others(ours) == []


def content(path: Path) -> bytes:
    """Return the content of a file, which may disappear at any moment."""
    with suppress(FileNotFoundError):
        return path.read_bytes()
    return b""


def test_scratch_files_of_spark_are_private(built: Site) -> None:
    made = [*(built.folder / "home" / "scratch").rglob("*")]
    assert any(each.name.startswith("blockmgr-") for each in made)
    assert [each for each in made if each.stat().st_mode & 0o077] == []


def test_token_is_printed_once_and_stored_nowhere(built: Site) -> None:
    lines = [each.cmdline() for each in family(built.server.process.pid) if lives(each)]
    assert [line for line in lines if built.token in " ".join(line)] == []
    assert built.said().count(built.token) == 1
    kept = [path for path in (built.folder / "home").rglob("*") if path.is_file()]
    assert [path for path in kept if built.token.encode() in content(path)] == []


def test_no_process_imports_a_library_from_the_current_folder(built: Site) -> None:
    """`python -m` would put the current folder first."""
    ran = built.folder / "a_stranger_ran"
    assert not ran.exists(), ran.read_text()


def memory(processes: list[psutil.Process], is_java: bool) -> float:
    """Return the memory of the Java processes, or of the others, in GB."""
    return sum(each.memory_info().rss for each in processes if (each.name() == "java") is is_java) / 1e9


def test_a_second_ui_in_the_same_home_is_refused_and_disturbs_nothing(site: Site) -> None:
    log = site.folder / "home" / "spark" / "connect.log"
    size, port = log.stat().st_size, free_port()
    command = [sys.executable, "-P", "-c", f"from feed_assets.cli.ui import ui; ui({port}, 'feed_assets.definitions')"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert f"another `feed-assets ui` works in {site.folder / 'home'}" in done.stderr
    assert done.returncode == 1
    assert log.stat().st_size >= size > 0


def test_a_ui_that_is_stopped_while_spark_warms_up_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    (tmp_path / "by_hand.py").write_text(PROJECT)
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-P", "-c", f"from feed_assets.cli.ui import ui; ui({free_port()}, 'by_hand')"]
    with group("feed-assets ui", command, tmp_path / "ui.log") as server:
        process = server.process
        wait_until(lambda: process.poll() is not None or warms_up(process), "Spark's first job", 120)
        ours = family(process.pid)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert [each for each in ours if lives(each)] == []
    assert (tmp_path / "ui.log").read_text().splitlines()[-1] == "feed-assets ui: all ended"


def warms_up(process: "subprocess.Popen[bytes]") -> bool:
    """Return True once Spark's first job speaks to the server: it then has the threads for that."""
    return any(is_busy_job(each) for each in family(process.pid))


def is_busy_job(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):  # It has ended, or waits to be reaped.
        return "feed_assets.spark.connect" in process.cmdline() and process.num_threads() > 3
    return False


def test_the_ui_ends_with_all_it_started_and_leaves_nothing_behind(site: Site) -> None:
    """Stop the site; this must be its last test."""
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
    assert [*(site.folder / "home" / "scratch").iterdir()] == []
