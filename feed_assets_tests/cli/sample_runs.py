"""Commands over the sample, in this process."""

from datetime import UTC, datetime

from typer.testing import CliRunner, Result

from feed_assets.cli import app
from feed_assets.core.feeds import Feed, Partition
from feed_assets.defs.ads import sample
from feed_assets.feeds.opened import open_board
from feed_assets.feeds.write import publish
from feed_assets.settings import settings

DAY = "2019-11-24/men"


def invoke(*args: str) -> Result:
    """Call the program with these arguments."""
    return CliRunner().invoke(app, args)


def drop(feed: str, content: bytes) -> str:
    """Publish one file of a feed. Return the id of the update."""
    where = Partition(Feed.parse(feed), DAY)
    return publish(open_board(settings()), where, {"part-1.csv": content}, datetime.now(UTC)).id


def drop_sample() -> None:
    drop("ads/shown_raw/v1.0", sample.shown_csv("2019-11-24", "men"))
    drop("ads/clicked_raw/v1.0", sample.clicked_csv("2019-11-24", "men"))
