"""The receiver judges an event like a run, which reads the same lines by Spark; and a run of pushed events."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import dagster as dg
from pyspark.sql import functions as sf

from feed_assets import feed_asset, foreign_feed, with_automation
from feed_assets.core.errors import InvalidEvent
from feed_assets.core.feeds import Feed, Partition
from feed_assets.intake.batch_publication import BatchContent, publish
from feed_assets.intake.bodies import sent
from feed_assets.intake.pushed import PushedFeed
from feed_assets.runs.services import Services
from feed_assets.settings import settings
from feed_assets.spark.input_frames import read
from feed_assets.testing import Harness
from feed_assets_tests.support.receivers import LINES, MEN, door_of, event, lines, listening
from feed_assets_tests.support.spark_updates import put_update

SCHEMA = (
    "id string, at timestamp, b tinyint, h smallint, n int, big bigint, f float, x double, d decimal(5,2), "
    "ok boolean, day date, l timestamp_ntz"
)
ALWAYS = PushedFeed(Feed.parse(MEN), SCHEMA, "at", datetime(1, 1, 2, tzinfo=UTC))
LATEST = datetime(9999, 12, 31, tzinfo=UTC).timestamp()
KINDS = dict(each.split(" ") for each in SCHEMA.split(", "))
FINE = {"id": '"a"', "at": '"2026-01-02T11:29:59.5Z"', "n": "1"}


def words(text: str) -> list[str]:
    return text.split()


NUMBERS = words(
    """
    0 -0 1 -1 7.0 7.00 7.5 1.50 1.505 127 128 -128 -129 32767 32768 2147483647 2147483648 9223372036854775807
    9223372036854775808 -9223372036854775808 9007199254740993 7.0000000000000001 999.99 1000 1e2 1E+2 1.5e1 1e-2 3.4e38
    3.5e38 1e308 1e309 -1e309 01 +1 .5 1. NaN Infinity -Infinity 0x1 99999999999999999999999999999999999999
    999999999999999999999999999999999999999 1.00000000000000000000000000000000000000000
    """
)
MOMENTS = words(
    """
    2026-01-02T11:00:00Z 2026-01-02_11:00:00 2026-01-02T11:00:00+05:30 2026-01-02T11:00:00-0800 2026-01-02T11:00:00+01
    2026-01-02T11:00:00.123456Z 2026-01-02T11:00:00.1234567Z 2026-01-02T24:00:00Z 2026-01-02T23:59:60Z 2023-02-29
    2026-02-29T11:00:00Z 2026-01-02T11:00Z 2026-1-2T11:00:00Z 2026-01-02 2024-02-29 2026-01-02t11:00:00z now
    2026-01-02T11:00:00_UTC 2026-01-02T11:00:00+25:00 2026-01-02T11:00:00+18:00 2026-01-02T11:00:00+18:01
    2026-01-02T11:00:00.Z _2026-01-02T11:00:00Z 2026-01-02T11:00:00-00:00 2026-01-02T11:00:00+00:60
    12026-01-02 1582-10-10T00:00:00Z 9999-12-30T00:00:00Z
    """
)
OTHERS = words(
    r"""
    "a" "" "7" "1.50" "-1.5" "1e3" "1.505" "a\nb" "\u00e9" "\ud83d\ude00" "\ud83d" "\u0000" "\x41" "😀" true false True
    null nil [] {} [1] {"id":1} 'a'
    """
)
ODD = ['"a\tb"', '"\x00"', "", '"\u0662026-01-02"']
VALUES = [*NUMBERS, *(f'"{each.replace("_", " ")}"' for each in MOMENTS), *OTHERS, *ODD]
NO_OBJECTS = ["{%s", "%s}", "[{%s}]", "{%s} x", "{%s,}", "{%s}{}", "{%s}}", "{%s}, {%s}", "null", "7", "[]"]
SHAPES = [*["{%s}"] * 30, " {%s} ", "\ufeff{%s}", "{%s}\r", *NO_OBJECTS]


def made(dice: Random) -> bytes:
    """Return a line: mostly an event with one or two odd values, else no event at all."""
    fields = dict(FINE)
    for name in dice.sample([*KINDS, "other", "ID", "a.b"], dice.choice([0, 1, 1, 1, 2])):
        fields[name] = dice.choice(VALUES)
    said = [f'"{name}":{value}' for name, value in fields.items()]
    dice.shuffle(said)
    said += [f'"n":{dice.choice(NUMBERS)}'] * (dice.random() < 0.02)
    return dice.choice(SHAPES).replace("%s", ", ".join(said)).encode()


def judged(raw: bytes) -> tuple[int | None, str]:
    """Return the receiver's verdict on a line: its window, or the reason why it is rejected."""
    each = sent(raw)
    try:
        return ALWAYS.window(each.value, LATEST, each.broken), ""
    except InvalidEvent as error:
        return None, str(error)


def test_receiver_and_run_reject_and_accept_the_same_lines(spark, local_board):
    """Compare thousands of random lines: digits of numbers, exponents, and repeated fields."""
    dice = Random(5)  # noqa: S311
    asked = [raw for raw in (made(dice).strip(b" \t\r") for _ in range(6_000)) if raw]
    update = put_update(local_board, {"part.json": b"".join(b"%s\n" % raw for raw in asked)})
    frame = read(spark, local_board, [update], "json", SCHEMA, required=["at"])
    found = frame.select("_raw", sf.unix_seconds("at").alias("at"), "_reasons").collect()
    assert len(found) == len(asked)
    by_raw = {row._raw: (row.at, row._reasons) for row in found}
    stricter, laxer, taken = [], [], 0
    for raw in asked:
        at, reasons = by_raw[raw.decode()]
        window, why = judged(raw)
        taken += window is not None
        if window is None and not reasons:
            stricter.append((raw, why))
        elif window is not None and reasons:
            laxer.append((raw, reasons))
        elif window is not None:
            assert window == at - at % 900, raw
    assert stricter == []
    assert laxer == []
    assert 1_000 < taken < 5_000


def test_an_hour_is_built_from_pushed_events_and_rebuilt_from_late_ones(home, spark, tmp_path):
    """Use two receivers, HTTP, a tick and Spark: each event is there once, though one was sent twice."""
    now = datetime.now(UTC)
    hour = (now - timedelta(hours=2)).replace(minute=0, second=0, microsecond=0)
    services = Services.of(settings())
    feeds = {MEN: PushedFeed(Feed.parse(MEN), RAW, "at", hour)}

    def pushed(spool: str, *numbers: int) -> None:
        door = door_of(services.board, services.ledger, tmp_path / spool, now=lambda: now)
        door.receiver.feeds = feeds
        with listening(door) as partner:
            body = lines(*(event(number, f"{hour:%Y-%m-%dT%H}:0{number}:00Z") for number in numbers))
            for _ in range(2):
                assert partner.post(body, headers={**LINES, "Idempotency-Key": str(numbers)}).ok

    with Harness(with_automation(dg.Definitions(assets=[*hourly(hour)]))) as world:
        pushed("one", 1, 2)
        pushed("two", 3)
        assert built(world) == [(f"{hour:%Y-%m-%d-%H:00}", True)]
        assert cleaned(world) == THREE
        assert built(world) == []
        pushed("two", 4)
        assert built(world) == [(f"{hour:%Y-%m-%d-%H:00}", True)]
        assert cleaned(world) == [*THREE, "| 4 | 40 |"]


def test_the_dataset_of_the_page_cleans_each_hour_of_each_source(home, spark):
    """Run the example of docs/receiver.md for sources as a static dimension, with Spark."""
    page = (Path(__file__).parents[2] / "docs" / "receiver.md").read_text(encoding="utf-8")
    (code,) = [
        each for each in re.findall(r"^```python\n(.*?)^```", page, re.M | re.S) if "def impressions_clean" in each
    ]
    shown: dict[str, Any] = {"__name__": "an_example"}
    exec(compile(code, "<docs/receiver.md>", "exec"), shown)  # noqa: S102
    hour, services = Partition(Feed.parse("partners/impressions/v1.0"), "2026-01-01-05:00"), Services.of(settings())
    twice = lines(*[{"impression_id": "a", "shown_at": "2026-01-01T05:01:00Z", "item_id": 1}] * 2)
    with Harness(with_automation(dg.Definitions(assets=[shown["impressions"], shown["impressions_clean"]]))) as world:
        publish(
            services,
            BatchContent(Partition(hour.feed, f"{hour.key}/women").batch("b"), {"events.json": twice}),
            "a test",
        )
        assert built(world) == [(f"{hour.key}|women", True)]
        preview = world.reported("partners/impressions_clean")[0].metadata["preview"].splitlines()[2:]
        assert [[cell.strip() for cell in row.split("|")[1:-1]] for row in preview] == [
            ["a", "2026-01-01 05:01:00", "1", "women"]
        ]


RAW = "id string, at timestamp, n int"
THREE = ["| 1 | 10 |", "| 2 | 20 |", "| 3 | 30 |"]


def hourly(first: datetime) -> tuple[dg.AssetSpec, dg.AssetsDefinition]:
    """Return a pushed feed, and a dataset made from each of its hours."""
    hours = dg.HourlyPartitionsDefinition(first)
    men = foreign_feed(MEN, schema=RAW, event_time="at", format="json", partitions_def=hours, intake="push")

    @feed_asset("partners/cleaned/v1.0", partitions_def=hours, inputs={"men": men})
    def cleaned(men):
        """Return ids and tens of what was pushed."""
        return men.selectExpr("id", "n * 10 AS tens")

    return men, cleaned


def built(world: Harness) -> list[tuple[str | None, bool]]:
    return [(run.partition, run.succeeded) for run in world.run_until_idle()]


def cleaned(world: Harness) -> list[str]:
    return sorted(world.reported("partners/cleaned")[0].metadata["preview"].splitlines()[2:])
