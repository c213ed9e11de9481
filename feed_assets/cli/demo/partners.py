"""Two partners and late data: one pushes events, one provides files. A day that has grown enough is built again."""

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from datetime import timedelta
from importlib.util import find_spec
from itertools import groupby
from socket import create_server
from threading import Thread
from typing import TYPE_CHECKING

import requests

from feed_assets.cli import late
from feed_assets.cli.receive import pushed_feeds
from feed_assets.core.addresses import LOOPBACK
from feed_assets.core.errors import DemoFailed
from feed_assets.core.feeds import Feed, Partition
from feed_assets.defs.ads.sample import Row, figures, moved, told_csv, told_json
from feed_assets.feeds.opened import open_as_owner
from feed_assets.intake import authentication
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.settings import settings

if TYPE_CHECKING:
    from feed_assets.cli.demo.stage import Stage

MEN, DAILY, WOMEN = Feed.parse("partners/men/v1.0"), Feed.parse("ads/partners_daily/v1.0"), "women"
LATE = {"2019-11-27": 0.1, "2019-11-28": 0.03, "2019-11-29": 0.01}
"""The sample's days in the story, and by how much each grows: the article's 2/27, 2/28 and 2/29."""


AHEAD = 8
"""Hours by which the demo's clock is ahead of the real clock at the end.

The partner's files are pulled twice, some hours apart.
"""


def play(stage: "Stage") -> None:
    """Play the story: three days on time, then the late files, which make one day worth a re-run."""
    if find_spec("fastapi") is None:
        stage.say("Partners and late data are skipped: the receiver needs `pip install 'feed-assets[receiver]'`.\n")
        return
    days = _days(stage)
    stage.step(f"the partner men pushes the events of {days[0]} to {days[-1]} to a receiver, by an API key")
    _push(stage, days)
    stage.step("files of the partner women are pulled, every four hours; the last files of each day are still missing")
    parts = [split(moved(day, "women", to), share) for (day, share), to in zip(LATE.items(), days, strict=True)]
    _write("ads_0.csv", (row for on_time, _ in parts for row in on_time))
    stage.later(hours=4)
    stage.run(len(days))
    stage.step(
        f"four hours later these arrive, and growth is measured: {days[0]} has grown by 5 % or more, and is built again"
    )
    _write("ads_1.csv", (row for _, after in parts for row in after))
    stage.later(hours=AHEAD)
    stage.run(1)
    _tell(stage, days[0])
    _check(stage, days, [len(on_time) for on_time, _ in parts])


def _tell(stage: "Stage", day: str) -> None:
    """Print what `feed-assets late` prints."""
    stage.say(f"\nDecisions about late data, by the demo's clock, which is {AHEAD} hours ahead")
    late.list_decisions(DAILY)
    stage.say(f"\n{DAILY} {day}, before and after")
    late.tell(Partition(DAILY, day))


def _days(stage: "Stage") -> list[str]:
    """Return the dates that the sample's days are moved to: the last full days (UTC)."""
    today = stage.services.now().date()
    return [f"{today - timedelta(days=back)}" for back in range(len(LATE), 0, -1)]


def _push(stage: "Stage", days: list[str]) -> None:
    key, accepted = authentication.add(stage.services.ledger, "men", [str(MEN)], stage.services.now()), 0
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/x-ndjson"}
    with _receiver(stage) as url:
        for day, to in zip(LATE, days, strict=True):
            events = told_json(moved(day, "men", to))
            answer = requests.post(f"{url}/v1/{MEN}/events", events, headers=headers, timeout=60)
            answer.raise_for_status()
            accepted += answer.json()["accepted"]
    hours = len(stage.board.children(str(MEN)))
    stage.say(f"  {accepted} events are accepted, and published as batches of {hours} hours")


@contextmanager
def _receiver(stage: "Stage") -> Generator[str]:
    """Run a receiver in a thread, and yield its URL. When the receiver ends, it publishes the accepted events."""
    from feed_assets.intake.event_calls import Calls
    from feed_assets.intake.serve import door_of, server_of

    feeds = pushed_feeds(Graph(stage.definitions.resolve_asset_graph()))
    door = door_of(Calls(stage.services), feeds, stage.folder / "receiver")
    server = server_of(door, LOOPBACK, 0, settings().receiver_flush_seconds)
    with create_server((LOOPBACK, 0)) as listening:  # Requests wait here until the server runs.
        thread = Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            yield f"http://{LOOPBACK}:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def split(rows: list[Row], share: float) -> tuple[list[Row], list[Row]]:
    """Return the rows of a day that arrive on time, and those that arrive late.

    The late rows are from the ends of the busiest hours. With the late rows the day grows by `share`.
    """
    hours = sorted(([*hour] for _, hour in groupby(rows, _hour)), key=len, reverse=True)
    ends = [row for hour in hours for row in hour[len(hour) // 2 :]]
    late = {row["impression_id"] for row in ends[: round(len(rows) * share / (1 + share))]}
    on_time = [row for row in rows if row["impression_id"] not in late]
    return on_time, [row for row in rows if row["impression_id"] in late]


def _hour(row: Row) -> str:
    return row["timestamp"][:13]


def _write(name: str, rows: Iterable[Row]) -> None:
    """Write a file for each hour, as the partner does: `2026-11-20/13/ads_0.csv`."""
    files = [(_hour(row).replace(" ", "/"), row) for row in rows]
    theirs = open_as_owner(settings(), WOMEN)
    for hour, hour_files in groupby(files, lambda each: each[0]):
        theirs.put(f"{hour}/{name}", told_csv(row for _, row in hour_files))


def _check(stage: "Stage", days: list[str], on_time: list[int]) -> None:
    """Compare the days with the sample's own rows.

    The first day has all rows, the other days have only the rows that arrived on time.
    """
    women = [figures(next(iter(LATE)), "women")[0], *on_time[1:]]
    for day, to, pulled in zip(LATE, days, women, strict=True):
        rows = stage.published(DAILY, to)[1].groupBy("campaign").sum("impressions").collect()
        expected = {"men": figures(day, "men")[0], "women": pulled}
        if (impressions := {row["campaign"]: row["sum(impressions)"] for row in rows}) != expected:
            raise DemoFailed(f"{DAILY} {to} has {impressions} impressions: the sample's own figures are {expected}.")
    stage.say(f"\nAll {len(days)} days equal the sample's own figures.\n")
