"""The page of `feed-assets status` as a person reads it, in a headless Chromium that can reach nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright
from typer.testing import CliRunner

from feed_assets.cli import app
from feed_assets.cli.status_page.frame import policy
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
"""Contrast as WCAG 2 defines it: small text needs 4.5."""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory, empty_ledger: Path) -> Path:
    folder = tmp_path_factory.mktemp("page")
    pages = {"status.html": ["--day", DAY], "newest.html": ["--live"], "one.html": ["--live", "--dataset", "web/foo"]}
    with status_project.filled_home(folder, empty_ledger):
        for name, options in pages.items():
            command = ["status", "-m", status_project.__name__, "--html", str(folder / name), *options]
            CliRunner().invoke(app, command, catch_exceptions=False)
    return folder / "status.html"


@pytest.fixture(scope="module")
def browser(file: Path) -> Iterator[Browser]:
    """Yield a browser. It starts after the page was made: Playwright's loop would disturb Dagster's."""
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


def test_status_page_is_readable_and_requests_no_other_file(browser, file):
    asked, said = [], []
    page = opened(browser, file, asked, said, 1500)
    assert page.locator(".legend li").count() == len(LEGEND)
    assert page.locator(".counts li").first.inner_text().strip() == "X2 invalid"
    assert page.locator(".grid").get_by_role("row", name="web/feature/v1.0").locator("td.late").count() == 1
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 27)"}[scheme]
        assert min(each.evaluate(CONTRAST) for each in page.locator(".legend .sign, body").all()) >= 4.5, scheme
    page.locator("td.invalid a").first.click()
    assert NASTY in page.locator("tr:target").inner_text()
    assert page.locator("tr:target").bounding_box()["y"] < 900
    assert [url.partition("#")[0] for url in asked] == [file.as_uri()]
    assert said == []
    page.close()


def test_on_a_narrow_screen_only_the_grid_scrolls_to_the_side_and_names_stay(browser, file):
    page = opened(browser, file, [], [], 390)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    name = page.locator(".grid").get_by_role("rowheader", name="web/foo")
    before = name.bounding_box()["x"]
    page.locator(".scroll").evaluate("element => element.scrollLeft = 300")
    assert page.locator(".scroll").evaluate("element => element.scrollLeft") == 300
    assert name.bounding_box()["x"] == before
    page.close()


CLIPPED = """() => document.documentElement.scrollWidth > innerWidth ? ["the page"]
    : [...document.querySelectorAll("td, th")]
    .filter(cell => cell.scrollWidth > cell.clientWidth + 1 || cell.getBoundingClientRect().right > innerWidth)
    .map(cell => cell.innerText)"""


def test_from_1000_pixels_on_no_column_is_clipped(browser, file):
    for name in ("status.html", "newest.html", "one.html"):
        for width in (1000, 1500):
            page = opened(browser, file.with_name(name), [], [], width)
            assert page.evaluate(CLIPPED) == [], (name, width)
            page.close()


def test_filters_by_name_and_state_survive_a_reload(browser, file):
    """Filter under the policy that the web UI sends: no script runs except the page's own."""
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    headers = {"content-security-policy": f"default-src 'none'; {policy()}"}
    body = file.with_name("newest.html").read_text()
    page.route("**/*", lambda route: route.fulfill(body=body, content_type="text/html", headers=headers))
    page.goto("http://status.test/status")
    datasets = page.locator("section").filter(has=page.locator(".strip")).locator("tbody tr:visible")
    every = datasets.count()
    page.get_by_label("filter by name").fill("WEB fOO")
    assert [each.inner_text() for each in datasets.locator("th").all()] == ["web/foo"]
    page.get_by_label("filter by name").fill("web/")
    page.get_by_label("invalid").check()
    names = [each.inner_text().split() for each in datasets.locator("th").all()]
    assert names == [["web/foo"], ["web/sums/v1.0", "apac"]]
    page.reload()
    assert page.url == "http://status.test/status?name=web%2F&state=invalid"
    assert datasets.count() == len(names)
    page.get_by_label("filter by name").fill("none such")
    assert page.get_by_text("Nothing matches the filter.").is_visible()
    page.goto("http://status.test/status")
    assert datasets.count() == every
    page.close()
