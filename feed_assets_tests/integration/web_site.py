"""The web UI of a folder of real ads: who looks at it, and a stranger's files beside its module."""

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

    @property
    def token(self) -> str:
        """The token in the address that the command printed; asked for only when it has."""
        return re.findall(rf"^web UI: http://127.0.0.1:{self.port}/\?token=(\S+)", self.said(), re.MULTILINE)[0]

    @property
    def cookie(self) -> dict[str, str]:
        """The header of who has shown the token."""
        return {"Cookie": f"feed_assets_{self.port}={self.token}"}

    def said(self) -> str:
        """All that the command and what it started have said."""
        return (self.folder / "ui.log").read_text()


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
    """The system's Chromium, or Playwright's own."""
    found = [path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))]
    path = [*found, playwright.chromium.executable_path][0]
    return path if Path(path).exists() else None


def drop(board: Blackboard) -> None:
    """A day of two campaigns; what was clicked in one of them is not what was shown."""
    clicked = {GOOD: sample.clicked_csv(DAY, GOOD), BAD: sample.clicked_csv(DAY, BAD).replace(b"bts-", b"lost-")}
    for campaign in (GOOD, BAD):
        for name, content in (("shown_raw", sample.shown_csv(DAY, campaign)), ("clicked_raw", clicked[campaign])):
            publish(board, partition(name, campaign), {"part-1.csv": content}, datetime.now(UTC))


def partition(name: str, campaign: str) -> Partition:
    return Partition(Feed.parse(f"ads/{name}/v1.0"), f"{DAY}/{campaign}")
