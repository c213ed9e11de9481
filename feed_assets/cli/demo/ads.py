"""A week of real ads, from two teams' raw files to a result: late clicks, and an update that is refused."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING

from feed_assets.core.errors import DemoFailed
from feed_assets.core.feeds import MANIFEST, Feed, Partition

if TYPE_CHECKING:
    from rich.table import Table

    from feed_assets.cli.demo.stage import Stage

SHOWN_RAW, CLICKED_RAW = Feed.parse("ads/shown_raw/v1.0"), Feed.parse("ads/clicked_raw/v1.0")
EFFECTIVENESS = Feed.parse("ads/effectiveness/v1.0")
LATE, CORRUPT = ("2019-11-26", "men"), ("2019-11-28", "women")

Place = tuple[str, str]


@dataclass(frozen=True)
class Line:
    """One line of the result: a day and campaign, with a 95 % interval (Wilson) around the click-through rate."""

    day: str
    campaign: str
    impressions: int
    clicks: int
    update_id: str

    @property
    def interval(self) -> tuple[float, float]:
        """The interval's ends."""
        n, share, z = self.impressions, self.clicks / self.impressions, 1.959963984540054
        middle, half = share + z * z / (2 * n), z * sqrt(share * (1 - share) / n + z * z / (4 * n * n))
        return (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)


def play(stage: "Stage") -> None:
    """The story, in the order in which things go wrong."""
    from feed_assets.defs.ads.sample import CAMPAIGNS, days
    from feed_assets.settings import settings
    from feed_assets.spark.session import session

    places = [(day, campaign) for day in days() for campaign in CAMPAIGNS]
    stage.step("starting Spark")
    session(settings())
    stage.step(f"two foreign teams drop {len(places)} days of impressions and of clicks on {stage.board.url}")
    for place in places:
        _drop(stage, *place)
    stage.step("sensors tick, and every partition whose inputs are there is built, audited and published")
    stage.run(len(places) * 3 + len(days()))
    stage.step(f"late clicks of {' '.join(LATE)} arrive: that day alone is built again")
    _drop_late(stage)
    stage.run(3)
    stage.step(f"a corrupt update of {' '.join(CORRUPT)} arrives: its manifest says one file more than there is")
    _drop_corrupt(stage)
    stage.run(0)
    _check_refusal(stage)
    _finish(stage, places)


def _drop(stage: "Stage", day: str, campaign: str) -> None:
    from feed_assets.defs.ads.sample import clicked_csv, shown_csv

    clicked = clicked_csv(day, campaign)
    if (day, campaign) == LATE:
        clicked = b"".join(clicked.splitlines(keepends=True)[:3])
    stage.publish(SHOWN_RAW, f"{day}/{campaign}", shown_csv(day, campaign))
    stage.publish(CLICKED_RAW, f"{day}/{campaign}", clicked)


def _drop_late(stage: "Stage") -> None:
    from feed_assets.defs.ads.sample import clicked_csv

    stage.publish(CLICKED_RAW, "/".join(LATE), clicked_csv(*LATE))


def _drop_corrupt(stage: "Stage") -> None:
    """As a foreign producer does that was cut off after its manifest was written too early."""
    from feed_assets.defs.ads.sample import shown_csv
    from feed_assets.feeds.write import claim
    from feed_assets.runs.workbench import utc_now

    partition = Partition(SHOWN_RAW, "/".join(CORRUPT))
    update_id = claim(stage.board, partition, b"demo", utc_now())
    stage.board.put(f"{partition.path}/{update_id}/part-1.csv", shown_csv(*CORRUPT)[:1000])
    stage.board.put(f"{partition.path}/{update_id}/{MANIFEST}", b"2")


def _check_refusal(stage: "Stage") -> None:
    from feed_assets.feeds.read import latest

    reading = latest(stage.board, Partition(SHOWN_RAW, "/".join(CORRUPT)))
    if reading.update is None or not reading.skipped:
        raise DemoFailed(f"{reading.partition}: the corrupt update was not refused in favour of the one before.")
    skipped = reading.skipped[0]
    stage.tell(f"  refused {skipped.id}: {skipped.reason}; {reading.update.id} goes on serving")


def _finish(stage: "Stage", places: Sequence[Place]) -> None:
    from feed_assets.defs.ads.sample import figures

    lines = [_line(stage, *place) for place in places]
    stage.tell(f"\n{EFFECTIVENESS}, by day and campaign")
    stage.console.print(_table(lines))
    for line in lines:
        if (line.impressions, line.clicks) != figures(line.day, line.campaign):
            raise DemoFailed(f"{line} differs from the sample's own {figures(line.day, line.campaign)}.")
    stage.tell(f"\nAll {len(lines)} lines are what the sample says.\n")


def _line(stage: "Stage", day: str, campaign: str) -> Line:
    """Sum a published partition up, as any reader of the feed could."""
    from feed_assets.feeds.read import latest, require
    from feed_assets.settings import settings
    from feed_assets.spark.read import read_own
    from feed_assets.spark.session import session

    update = require(latest(stage.board, Partition(EFFECTIVENESS, f"{day}/{campaign}")))
    rows = read_own(session(settings()), stage.board, update)
    total = rows.selectExpr("sum(impressions) AS impressions", "sum(clicks) AS clicks").collect()[0]
    return Line(day, campaign, total["impressions"], total["clicks"], update.id)


def _table(lines: Sequence[Line]) -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in ("day", "campaign"):
        table.add_column(name, no_wrap=True)
    for name in ("impressions", "clicks", "CTR", "95 % interval", "update id"):
        table.add_column(name, justify="right", no_wrap=True)
    for line in lines:
        low, high = line.interval
        rate, interval = f"{line.clicks / line.impressions:.2%}", f"{low:.2%}-{high:.2%}"
        table.add_row(line.day, line.campaign, f"{line.impressions}", f"{line.clicks}", rate, interval, line.update_id)
    return table
