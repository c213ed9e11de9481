"""The page of `feed-assets status` as a person reads it, in a headless Chromium that can reach nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright
from typer.testing import CliRunner

from feed_assets.cli import app
from feed_assets.core.grid import LEGEND
from feed_assets_tests.integration.web_site import QUIET, program
from feed_assets_tests.support import status_project
from feed_assets_tests.support.status_project import DAY, NASTY

CONTRAST = """element => {
    const light = text => text.match(/[\\d.]+/g).slice(0, 3).map(Number).map(each => each / 255)
        .map(each => each <= 0.03928 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4)
        .reduce((sum, each, at) => sum + each * [0.2126, 0.7152, 0.0722][at], 0);
    const style = getComputedStyle(element);
    const [dark, bright] = [light(style.color), light(style.backgroundColor)].sort((a, b) => a - b);
    return (bright + 0.05) / (dark + 0.05);
}"""
"""As WCAG 2 has it: 4.5 is what small text needs."""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory, empty_ledger: Path) -> Path:
    folder = tmp_path_factory.mktemp("page")
    with status_project.filled_home(folder, empty_ledger):
        command = ["status", "-m", status_project.__name__, "--day", DAY, "--html", str(folder / "status.html")]
        CliRunner().invoke(app, command, catch_exceptions=False)
    return folder / "status.html"


@pytest.fixture(scope="module")
def browser(file: Path) -> Iterator[Browser]:
    """After the page was made: Playwright's loop would be in the way of Dagster's."""
    with sync_playwright() as playwright:
        path = program(playwright)
        if path is None:
            pytest.skip("no Chromium for the test of the page: scripts/get_chromium.sh installs one")
        with playwright.chromium.launch(executable_path=path, args=QUIET) as browser:
            yield browser


def opened(browser: Browser, file: Path, asked: list[str], said: list[str], width: int) -> Page:
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("dialog", lambda dialog: said.append(dialog.message))
    page.goto(file.as_uri())
    return page


def test_the_page_is_read_at_once_and_needs_nothing_from_elsewhere(browser, file):
    asked, said = [], []
    page = opened(browser, file, asked, said, 1500)
    assert page.locator(".legend li").count() == len(LEGEND)
    assert page.locator(".counts li").first.inner_text() == "X2 invalid"
    assert page.get_by_role("row", name="web/feature/v1.0").first.locator("td.late").count() == 1
    assert min(sign.evaluate(CONTRAST) for sign in page.locator(".legend .sign").all()) >= 4.5
    page.locator("td.invalid a").first.click()
    assert NASTY in page.locator("tr:target").inner_text()
    assert page.locator("tr:target").bounding_box()["y"] < 900
    assert [url.partition("#")[0] for url in asked] == [file.as_uri()]
    assert said == []
    page.close()


def test_on_a_narrow_screen_only_the_grid_scrolls_to_the_side_and_names_stay(browser, file):
    page = opened(browser, file, [], [], 390)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    name = page.get_by_role("rowheader", name="web/foo")
    before = name.bounding_box()["x"]
    page.locator(".scroll").evaluate("element => element.scrollLeft = 400")
    assert page.locator(".scroll").evaluate("element => element.scrollLeft") == 400
    assert name.bounding_box()["x"] == before
    page.close()
