"""Complete windows: the article's story of one slot, then a day that is complete once every region has reported it."""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from feed_assets import report_state
from feed_assets.cli.show import Values, show
from feed_assets.core.errors import DemoFailed
from feed_assets.core.feeds import Feed
from feed_assets.defs.ads.sample import CAMPAIGNS, REGIONS, Row, shown_between
from feed_assets.ledger.states.state_views import transitions

if TYPE_CHECKING:
    from feed_assets.cli.demo.stage import Stage

DAILY, FOO, IMPRESSIONS = Feed.parse("ads/daily/v1.0"), "foo", "ads/impressions"
DAY = "2019-11-26"
HOUR, BASE = timedelta(hours=1), timedelta(minutes=5)
STORY = [
    "hour [15:00 ~ 16:00) complete",
    "10min [15:50 ~ 16:00) complete",
    "5min [15:55 ~ 16:00) complete",
    "5min [16:00 ~ 16:05) complete",
]
"""The changes of windows that the slot from 15:58 to 16:08 causes."""


def play(stage: "Stage") -> None:
    """Play both stories, with the sample's impressions in the order of their arrival."""
    stage.step("topic foo is ingested up to 15:58, and its source has counted up to 16:10: hour 15 waits")
    begin, cut, end, counted = (_at(f"{DAY}T{time}") for time in ("15:00", "15:58", "16:08", "16:10"))
    source = _source(FOO, {}, "kafka", start=begin, length=counted - begin, rows=shown_between(begin, counted))
    _report([source, _part(FOO, {}, shown_between(begin, cut))])
    stage.step("the slot from 15:58 to 16:08 arrives: it completes four windows, and flows that read them may start")
    before = _last(stage)
    _report([_part(FOO, {}, shown_between(cut, end))])
    _check_story(stage, before)
    stage.step(f"hours of all regions are reported, up to the end of {DAY} in Singapore: hours, and the day of apac")
    _replay(_at("2019-11-25T16:00"), _at("2019-11-26T16:00"))
    stage.run(24 + 1)
    stage.step("… up to its end in Los Angeles: the days of the other regions, and the global day, which waits for all")
    _replay(_at("2019-11-26T16:00"), _at("2019-11-27T08:00"))
    stage.run(16 + 3 + 1)
    _check_day(stage)


def _last(stage: "Stage") -> int:
    with stage.services.ledger.read() as connection:
        return transitions(connection, None, None, 1)[0].sequence


def _check_story(stage: "Stage", before: int) -> None:
    with stage.services.ledger.read() as connection:
        changes = transitions(connection, before, None, 100)
    lines = [f"{each.address.grain} [{each.start:%H:%M} ~ {each.end:%H:%M}) {each.after}" for each in changes]
    for line, each in zip(lines, changes, strict=True):
        stage.say(f"  {line}: {each.why}")
    if lines != STORY:
        raise DemoFailed(f"the slot made these transitions: {lines}. Expected {STORY}.")


def _check_day(stage: "Stage") -> None:
    """Compare the global day with the sample's own counts. A region's day begins at its own midnight."""
    update, rows = stage.published(DAILY, DAY)
    day_rows = sorted((row.asDict() for row in rows.collect()), key=lambda row: (row["region"], row["campaign"]))
    stage.say(
        f"\n{DAILY} {DAY}, update {update.id}: each region by its own clock (the regions are invented, see the sample)"
    )
    show([_line(row) for row in day_rows], as_json=False)
    expected = {(region, *figures) for region, zone in REGIONS.items() for figures in _figures(region, zone)}
    if {(row["region"], row["campaign"], row["impressions"], row["clicks"]) for row in day_rows} != expected:
        raise DemoFailed(f"{DAILY} {DAY} is {day_rows}: the sample's own figures are {sorted(expected)}.")
    stage.say(f"All {len(day_rows)} lines equal the sample's own figures.\n")


def _line(row: dict[str, Any]) -> Values:
    counted = {name: row[name] for name in ("region", "campaign", "impressions", "clicks")}
    return Values.of(**counted, CTR=f"{row['ctr']:.2%}")


def _figures(region: str, zone: str) -> Iterator[tuple[str, int, int]]:
    """Yield the impressions and clicks of a region's own day, by campaign."""
    start = datetime.fromisoformat(DAY).replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
    rows = [row for row in shown_between(start, start + timedelta(days=1)) if row["region"] == region]
    for campaign in CAMPAIGNS:
        clicks = [row["click"] for row in rows if row["campaign"] == campaign]
        yield campaign, len(clicks), clicks.count("1")


def _at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def _replay(start: datetime, end: datetime) -> None:
    """Report, hour by hour, what the ad server has counted and what was ingested, by region and campaign."""
    while start < end:
        rows, records = shown_between(start, start + HOUR), list[dict[str, Any]]()
        for region, campaign in product(REGIONS, CAMPAIGNS):
            place = {"region": region, "campaign": campaign}
            matching_rows = [row for row in rows if place.items() <= row.items()]
            records += [
                _source(IMPRESSIONS, place, "adserver", start=start, length=HOUR, rows=matching_rows),
                _part(IMPRESSIONS, place, matching_rows),
            ]
        _report(records)
        start += HOUR


def _source(
    dataset: str, place: dict[str, str], tier: str, start: datetime, length: timedelta, rows: list[Row]
) -> dict[str, Any]:
    """Return the counts of a source.

    Windows without records are included with the count 0, because they are over, too.
    """
    counts = _counts(rows)
    windows = [_window(start + number * BASE, counts) for number in range(length // BASE)]
    return {"kind": "source", "dataset": dataset, "sub_partition": place, "tier": tier, "windows": windows}


def _part(dataset: str, place: dict[str, str], rows: list[Row]) -> dict[str, Any]:
    """Return the counts of an ingested file. The file is named after its first record."""
    counts, name = _counts(rows), f"s3://lake/{dataset}/{rows[0]['timestamp'] if rows else 'empty'}.csv"
    windows = [_window(start, counts) for start in sorted(counts)]
    return {"kind": "part", "dataset": dataset, "sub_partition": place, "part": name, "windows": windows}


def _window(start: datetime, counts: Counter[datetime]) -> dict[str, Any]:
    return {"start": start, "records": counts[start]}


def _counts(rows: list[Row]) -> Counter[datetime]:
    """Return the number of records in each 5 minutes."""
    times = (datetime.fromisoformat(row["timestamp"]) for row in rows)
    return Counter(at - (at - _at("2019-01-01")) % BASE for at in times)


def _report(records: Iterable[dict[str, Any]]) -> None:
    if rejected := report_state(records, by="demo").rejected:
        raise DemoFailed(f"a report was rejected: {rejected[0].reason}")
