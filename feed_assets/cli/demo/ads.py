"""A week of real ads, from two teams' raw files to a result, with late clicks and an update that is refused."""

from typing import TYPE_CHECKING

from feed_assets.cli.show import Values, show
from feed_assets.core.errors import DemoFailed
from feed_assets.core.feeds import MANIFEST, Feed, Partition
from feed_assets.defs.ads.effectiveness import with_ctr
from feed_assets.defs.ads.sample import CAMPAIGNS, clicked_csv, days, figures, shown_csv
from feed_assets.feeds.read import latest
from feed_assets.feeds.write import claim
from feed_assets.settings import settings
from feed_assets.spark.session import session

if TYPE_CHECKING:
    from feed_assets.cli.demo.stage import Stage

SHOWN_RAW, CLICKED_RAW = Feed.parse("ads/shown_raw/v1.0"), Feed.parse("ads/clicked_raw/v1.0")
EFFECTIVENESS = Feed.parse("ads/effectiveness/v1.0")
LATE, CORRUPT = ("2019-11-26", "men"), ("2019-11-28", "women")


def play(stage: "Stage") -> None:
    """Play the story: impressions, then late clicks, then a corrupt update."""
    keys = [(day, campaign) for day in days() for campaign in CAMPAIGNS]
    stage.step("starting Spark")
    session(settings())
    stage.step(f"two foreign teams drop {len(keys)} days of impressions and of clicks on {stage.board.url}")
    for key in keys:
        _drop(stage, *key)
    stage.step("sensors tick, and every partition that has its inputs is built, audited and published")
    stage.run(len(keys) * 3 + len(days()))
    stage.load(EFFECTIVENESS, len(keys))
    stage.step(f"late clicks of {' '.join(LATE)} arrive: that day alone is built again, and loaded again")
    stage.publish(CLICKED_RAW, "/".join(LATE), clicked_csv(*LATE))
    stage.run(3)
    stage.load(EFFECTIVENESS, 1)
    stage.step(f"a corrupt update of {' '.join(CORRUPT)} arrives: its manifest counts one file too many")
    _drop_corrupt(stage)
    stage.run(0)
    _check_refusal(stage)
    stage.say(f"\n{EFFECTIVENESS}, by day and campaign, as the warehouse has it")
    show(_results(stage, keys), as_json=False)
    stage.say(f"\nAll {len(keys)} lines equal the sample's own figures.\n")


def _drop(stage: "Stage", day: str, campaign: str) -> None:
    clicked = clicked_csv(day, campaign)
    if (day, campaign) == LATE:
        clicked = b"".join(clicked.splitlines(keepends=True)[:3])
    stage.publish(SHOWN_RAW, f"{day}/{campaign}", shown_csv(day, campaign))
    stage.publish(CLICKED_RAW, f"{day}/{campaign}", clicked)


def _drop_corrupt(stage: "Stage") -> None:
    """Write the update of a foreign producer that put its manifest too early and was then cut off."""
    partition = Partition(SHOWN_RAW, "/".join(CORRUPT))
    update_id = claim(stage.board, partition, b"demo", stage.services.now())
    stage.board.put(f"{partition.path}/{update_id}/part-1.csv", shown_csv(*CORRUPT)[:1000])
    stage.board.put(f"{partition.path}/{update_id}/{MANIFEST}", b"2")


def _check_refusal(stage: "Stage") -> None:
    reading = latest(stage.board, Partition(SHOWN_RAW, "/".join(CORRUPT)))
    if reading.update is None or not reading.skipped:
        raise DemoFailed(
            f"{reading.partition}: the corrupt update was not refused: expected readers to keep the update before."
        )
    skipped = reading.skipped[0]
    stage.say(f"  refused {skipped.id}: {skipped.reason}; {reading.update.id} is still read")


def _results(stage: "Stage", keys: list[tuple[str, str]]) -> list[Values]:
    """Return the sums of each day and campaign in the warehouse. Raise DemoFailed if they differ from the sample."""
    rows = sorted(stage.ask(_SUMS))
    counted = {key: (int(impressions), int(clicks)) for key, _, impressions, clicks in rows}
    if counted != {"/".join(key): figures(*key) for key in keys}:
        raise DemoFailed(f"the warehouse has {counted}, which differs from the sample's own figures.")
    return [_result(key, update_id, *counted[key]) for key, update_id, *_ in rows]


_SUMS = """SELECT _partition, update_id, sum(impressions), sum(clicks) FROM "ads/effectiveness/v1.0"
JOIN feed_assets.updates ON dataset = 'ads/effectiveness/v1.0' AND partition_key = _partition GROUP BY ALL"""


def _result(key: str, update_id: str, impressions: int, clicks: int) -> Values:
    """Return the sums of a day and campaign, with a 95 % interval around the click-through rate."""
    day, campaign = key.split("/")
    counted = {"impressions": impressions, "clicks": clicks}
    sums = session(settings()).sql("SELECT :impressions AS impressions, :clicks AS clicks", counted)
    row = with_ctr(sums).collect()[0].asDict()
    rates = {"CTR": f"{row['ctr']:.2%}", "95 % interval": f"{row['ctr_low']:.2%}-{row['ctr_high']:.2%}"}
    return Values.of(day=day, campaign=campaign, **counted, **rates, **{"update id": update_id})
