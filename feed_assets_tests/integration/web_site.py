"""The web UI of a folder of real ads: its browser, and a stranger's files beside its module."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from playwright.sync_api import Browser, Page, Playwright

from feed_assets.cli.processes import Started
from feed_assets.core.feeds import Feed, Partition
from feed_assets.defs.ads import sample
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.write import publish

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
STRANGER = """
import os, sys
open(f"{os.path.dirname(__file__)}/a_stranger_ran", "a").write(f"{__name__}: {sys.argv}\\n")
raise ImportError("a stranger")
"""
LIBRARIES = (
    "psutil", "numpy", "pandas", "pyarrow", "pyspark", "grpc", "yaml", "click", "sqlalchemy", "alembic", "graphql",
    "starlette", "uvicorn", "requests", "pydantic", "dagster_webserver", "typer",
    "pydantic_settings", "tempfile", "random",
)  # fmt: skip
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
"""Milliseconds until a missing element of a page counts as absent."""
BUILDS = 900_000
"""Milliseconds for the end of a backfill and the start of the servers: a few seconds on an idle machine."""


@dataclass(frozen=True)
class Site:
    """The web UI, the blackboard of its home, and the folder of both."""

    server: Started
    port: int
    board: Blackboard
    folder: Path

    @property
    def token(self) -> str:
        """Return the token in the address that the command printed; call it only afterwards."""
        return re.findall(rf"^web UI: http://127.0.0.1:{self.port}/\?token=(\S+)", self.said(), re.MULTILINE)[0]

    @property
    def cookie(self) -> dict[str, str]:
        """Return the cookie header of a browser that has shown the token."""
        return {"Cookie": f"feed_assets_{self.port}={self.token}"}

    def said(self) -> str:
        """Return the output of the command and of the processes that it started."""
        return (self.folder / "ui.log").read_text()


@dataclass(frozen=True)
class Pages:
    """The browser of a site; screenshots go to the site's folder."""

    site: Site
    browser: Browser

    @contextmanager
    def page(self, path: str) -> Iterator[Page]:
        """Open a page of the UI. Save a screenshot if the block fails."""
        page = self.browser.new_page(viewport={"width": 1500, "height": 1000})
        page.set_default_timeout(PATIENCE)
        # In a fresh home a dialog appears after a second, and would be in the way of clicks.
        page.add_init_script("localStorage.setItem('communityNux', JSON.stringify('1'))")
        try:
            page.goto(f"http://127.0.0.1:{self.site.port}{path}{'&' if '?' in path else '?'}token={self.site.token}")
            assert page.url == f"http://127.0.0.1:{self.site.port}{path}"
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
    """Return the system's Chromium, or Playwright's own."""
    found = [path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))]
    path = [*found, playwright.chromium.executable_path][0]
    return path if Path(path).exists() else None


def drop(board: Blackboard) -> None:
    """Publish a day of two campaigns. The clicks of the bad one match no impressions."""
    clicked = {GOOD: sample.clicked_csv(DAY, GOOD), BAD: sample.clicked_csv(DAY, BAD).replace(b"bts-", b"lost-")}
    for campaign in (GOOD, BAD):
        for name, content in (("shown_raw", sample.shown_csv(DAY, campaign)), ("clicked_raw", clicked[campaign])):
            publish(board, partition(name, campaign), {"part-1.csv": content}, datetime.now(UTC))


def partition(name: str, campaign: str) -> Partition:
    return Partition(Feed.parse(f"ads/{name}/v1.0"), f"{DAY}/{campaign}")
