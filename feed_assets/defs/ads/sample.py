"""The sample data of the package, in the form of the teams' raw feeds and of the partners' data.

`sample/README.md` names the source of the data. An impression's id is `<policy>-<campaign>-<row number in the file>`.
"""

import csv
import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from io import StringIO
from pathlib import Path
from zlib import crc32

CAMPAIGNS = ("men", "women")
REGIONS = {"apac": "Asia/Singapore", "south_asia": "Asia/Karachi", "emea": "UTC", "americas": "America/Los_Angeles"}
"""Time zones by region. Their offsets are those of the article: UTC+8, UTC+5, UTC and UTC-8."""
POLICIES = ("bts", "random")
SHOWN = (
    *("impression_id", "timestamp", "campaign", "policy", "item_id", "position", "propensity_score"),
    *(f"user_feature_{number}" for number in range(4)),
)
CLICKED = ("impression_id", "clicked_at")
TOLD = {"impression_id": str, "timestamp": str, "policy": str, "item_id": int, "position": int, "click": int}
"""Fields of an impression that the partners of `partners.py` send, with their types in JSON."""

_FOLDER = Path(__file__).with_name("sample")

Row = dict[str, str]


def days() -> tuple[str, ...]:
    """Return the dates (UTC) of the sample, in order."""
    return tuple(sorted({_date(row) for campaign in CAMPAIGNS for row in _rows(campaign)}))


def shown_csv(day: str, campaign: str) -> bytes:
    """Return the raw impressions of one day and campaign, in the form of `ads/shown_raw/v1.0`."""
    return _csv(SHOWN, _of(day, campaign))


def clicked_csv(day: str, campaign: str) -> bytes:
    """Return the raw clicks of one day and campaign, in the form of `ads/clicked_raw/v1.0`."""
    return _csv(CLICKED, (row | {"clicked_at": row["timestamp"]} for row in _of(day, campaign) if row["click"] == "1"))


def figures(day: str, campaign: str) -> tuple[int, int]:
    """Return the numbers of impressions and clicks of one day and campaign, from the sample's click flags."""
    rows = _of(day, campaign)
    return len(rows), sum(row["click"] == "1" for row in rows)


def region_of(row: Mapping[str, str]) -> str:
    """Return the region of an impression.

    The sample has no geography, so the region is derived from a hashed feature of the user.
    """
    return [*REGIONS][crc32(row["user_feature_2"].encode()) % len(REGIONS)]


def shown_between(start: datetime, end: datetime) -> list[Row]:
    """Return the impressions of all campaigns in `[start, end)`, ordered by their timestamps, each with its region."""
    first, last = (moment.isoformat(" ") for moment in (start, end))
    rows = [row for campaign in CAMPAIGNS for row in _rows(campaign) if first <= row["timestamp"] < last]
    return [{**row, "region": region_of(row)} for row in sorted(rows, key=lambda row: row["timestamp"])]


def moved(day: str, campaign: str, to: str) -> list[Row]:
    """Return the impressions of one day and campaign, moved to another date and ordered by timestamp."""
    rows = [row | {"timestamp": to + row["timestamp"][len(to) :]} for row in _of(day, campaign)]
    return sorted(rows, key=lambda row: row["timestamp"])


def told_csv(rows: Iterable[Row]) -> bytes:
    """Return impressions in the form of `partners/women/v1.0`."""
    return _csv([*TOLD], rows)


def told_json(rows: Iterable[Row]) -> bytes:
    """Return impressions in the form of `partners/men/v1.0`."""
    events = ({name: kind(row[name]) for name, kind in TOLD.items()} for row in rows)
    return "".join(f"{json.dumps(each)}\n" for each in events).encode()


def _of(day: str, campaign: str) -> list[Row]:
    rows = [row for row in _rows(campaign) if _date(row) == day]
    if not rows:
        raise ValueError(f"the sample has no day {day!r}: expected one of {', '.join(days())}.")
    return rows


@cache
def _rows(campaign: str) -> tuple[Row, ...]:
    if campaign not in CAMPAIGNS:
        raise ValueError(f"the sample has no campaign {campaign!r}: expected one of {', '.join(CAMPAIGNS)}.")
    return tuple(row for policy in POLICIES for row in _read(policy, campaign))


def _read(policy: str, campaign: str) -> list[Row]:
    origin = {"campaign": campaign, "policy": policy}
    with gzip.open(_FOLDER / f"{policy}_{campaign}.csv.gz", "rt", encoding="utf-8", newline="") as file:
        return [
            {"impression_id": f"{policy}-{campaign}-{number}", **origin, **row}
            for number, row in enumerate(csv.DictReader(file))
        ]


def _date(row: Row) -> str:
    return row["timestamp"][:10]  # each timestamp is ISO 8601 in UTC


def _csv(header: Sequence[str], rows: Iterable[Row]) -> bytes:
    text = StringIO()
    writer = csv.DictWriter(text, header, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()
