"""Update docs/ui.png and docs/status.png: the demo's asset graph and its status page. Run `make demo` before."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from shutil import which

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parents[1]
HOME = ROOT / ".feed_assets" / "demo"
GRAPH, STATUS = ROOT / "docs" / "ui.png", ROOT / "docs" / "status.png"
PAGE = "/locations/feed_assets/asset-groups/ads/lineage"
SECONDS = 180


def address(ui: "subprocess.Popen[str]") -> str:
    """Return the address with its token, which the command prints once the web UI answers."""
    for line in ui.stdout or ():
        if found := re.search(r"(http://\S+)/\?token=(\S+)", line):
            return f"{found[1]}{PAGE}?token={found[2]}"
    raise SystemExit("feed-assets ui ended before it said where it is: run it by hand to see why.")


def photograph(url: str) -> None:
    """Wait until the graph and the page are rendered, and take the screenshots."""
    program = which("chromium") or which("chromium-browser")  # scripts/get_chromium.sh can install it.
    with sync_playwright() as playwright, playwright.chromium.launch(executable_path=program) as browser:
        page = browser.new_page(viewport={"width": 1360, "height": 760})
        page.goto(url.replace(PAGE, "/"), timeout=SECONDS * 1000)
        page.goto(url.partition("?")[0], timeout=SECONDS * 1000)
        page.get_by_text("effectiveness_daily").first.wait_for(timeout=SECONDS * 1000)
        time.sleep(5)  # The layout moves for a moment.
        page.screenshot(path=GRAPH)
        page.set_viewport_size({"width": 1360, "height": 900})
        page.goto(url.partition("?")[0].replace(PAGE, "/status"), timeout=SECONDS * 1000)
        page.get_by_text("Newest periods of each dataset").wait_for(timeout=SECONDS * 1000)  # The page loads it later.
        page.screenshot(path=STATUS)


def main() -> None:
    """Start the web UI on the demo's home, take the screenshots, and stop it."""
    if not HOME.is_dir():
        raise SystemExit(f"there is no {HOME}: run `make demo` first.")
    command = [str(Path(sys.executable).with_name("feed-assets")), "ui", "--port", "3579"]
    environment = {**os.environ, "DAGSTER_HOME": str(HOME)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT) as ui:  # noqa: S603
        try:
            photograph(address(ui))
        finally:
            ui.terminate()
    print(GRAPH, STATUS)


if __name__ == "__main__":
    main()
