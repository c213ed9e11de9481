"""Update docs/ui.png and docs/status.png: the demo's asset graph and its status page.

Run `make demo` and `scripts/get_chromium.sh` before. Both pictures have the same size, zone and language each time.
"""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from shutil import which

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).parents[1]
HOME = ROOT / ".feed_assets" / "demo"
GRAPH, STATUS = ROOT / "docs" / "ui.png", ROOT / "docs" / "status.png"
PAGE = "/locations/feed_assets/asset-groups/ads/lineage"
SECONDS, LOOKS = 180, 200
"""Seconds to wait for a page, and the most pictures that are taken until two are equal."""


def address(ui: "subprocess.Popen[str]") -> str:
    """Return the address with its token, which the command prints once the web UI answers."""
    for line in ui.stdout or ():
        if found := re.search(r"(http://\S+)/\?token=(\S+)", line):
            return f"{found[1]}{PAGE}?token={found[2]}"
    raise SystemExit("feed-assets ui ended before it said where it is: run it by hand to see why.")


def take(page: Page, path: Path) -> None:
    """Write a screenshot once two in a row are equal, and nothing loads. Raise SystemExit if that never happens."""
    loading = page.locator("text=Loading >> visible=true")
    before = b""
    for _ in range(LOOKS):
        picture = page.screenshot(animations="disabled", caret="hide")
        if picture == before and not loading.count():
            path.write_bytes(picture)
            return
        before = picture
        page.wait_for_timeout(500)
    raise SystemExit(f"{page.url} does not come to rest: expected two equal pictures. Look at it in a browser.")


def photograph(url: str) -> None:
    """Open the graph and the status page in one browser, and take the screenshots."""
    program = which("chromium") or which("chromium-browser")  # Without them, Playwright's own.
    root, _, _ = url.partition(PAGE)
    with sync_playwright() as playwright, playwright.chromium.launch(executable_path=program) as browser:
        page = browser.new_page(viewport={"width": 1360, "height": 760}, locale="en-GB", timezone_id="UTC")
        page.set_default_timeout(SECONDS * 1000)
        page.goto(url.replace(PAGE, "/"))
        page.goto(f"{root}{PAGE}")
        page.get_by_text("effectiveness_daily").first.wait_for()
        take(page, GRAPH)
        page.set_viewport_size({"width": 1360, "height": 900})
        page.goto(f"{root}/status")
        page.get_by_text("Newest periods of each dataset").wait_for()  # The page loads it later.
        take(page, STATUS)


def free_port() -> int:
    """Return a port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main() -> None:
    """Start the web UI on the demo's home, take the screenshots, and stop it."""
    if not HOME.is_dir():
        raise SystemExit(f"there is no {HOME}: run `make demo` first.")
    command = [str(Path(sys.executable).with_name("feed-assets")), "ui", "--port", str(free_port())]
    environment = {**os.environ, "DAGSTER_HOME": str(HOME)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT) as ui:  # noqa: S603
        try:
            photograph(address(ui))
        finally:
            ui.terminate()
    print(GRAPH, STATUS)


if __name__ == "__main__":
    main()
