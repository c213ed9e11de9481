"""The function `feed_assets.read`, which finds the valid data of a feed's partitions."""

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from feed_assets.core.errors import InvalidName
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.limits import check_partition
from feed_assets.feeds.opened import board_at
from feed_assets.reading.data import FeedData
from feed_assets.reading.lookup import Looker
from feed_assets.settings import settings

_RANGE = "the range's first key and its end, such as '2026-06-01', '2026-06-08'"


def read(
    feed: str,
    partition: str | Iterable[str] = "",
    to: str | None = None,
    *,
    as_of: datetime | None = None,
    blackboard: str | Path | None = None,
    batches: bool = False,
    grain: str | None = None,
    partial: bool = False,
    union_by_name: bool = False,
) -> FeedData:
    """Find the newest valid update of each partition, or of each of its batches. No file is opened yet.

    Args:
        feed: Name and version, `plant/daily/v1.0`.
        partition: A key such as `2026-06-01` or `2026-06-01/men`, several keys, or '' for a feed without partitions.
        to: The exclusive end of a range that begins with `partition`, such as a day or an hour.
        as_of: Take the newest valid update of each partition with an id up to this time; timezone-aware.
        blackboard: A URL, a `Path`, or a name in FEED_ASSETS_BLACKBOARDS; by default FEED_ASSETS_BLACKBOARD.
        batches: True for an appendable feed: take all batches of each partition that are in effect.
        grain: The size of a range's partitions: `day`, `hour`, or minutes such as `15min`. By default the form of the
            range's ends shows it.
        partial: Skip partitions without a valid update, and list them in `left_out`. At least one must be valid.
        union_by_name: Allow files that lack columns. Missing columns are NULL.

    Returns:
        The data: `.paths`, `.schema`, `.update_id`, `.to_arrow()`, `.to_reader()`, `.to_pandas()`,
        `.to_spark(session)`.

    Raises:
        NoValidUpdate: A partition has no valid update; the message has the reasons. Its subclass UpdatePruned is
            raised if the update of that time was pruned.
        InvalidName: The feed, a key, the range or the time is invalid.
        BlackboardError: The store does not exist, refuses, or does not answer.
        InvalidSetting: There is no blackboard of this name.
    """
    name, moment = Feed.parse(_text(feed, "the name of a feed as a text, such as 'plant/daily/v1.0'")), _checked(as_of)
    if grain and to is None:
        raise InvalidName(f"grain={grain!r} is for a range, but `to` is not given: expected {_RANGE}. Leave out grain.")
    url = blackboard.resolve().as_uri() if isinstance(blackboard, Path) else blackboard
    look = Looker(board_at(settings(), url), moment, batches)
    looked = look.each(_listed(name, partition)) if to is None else look.between(name, _key(partition), _key(to), grain)
    absent = [each for each in looked if each.error]
    if absent and not (partial and len(absent) < len(looked)):
        raise look.refusal(looked)
    return FeedData(
        feed=name,
        updates=tuple(update for each in looked for update in each.updates),
        left_out=tuple(left for each in looked for left in each.all_left_out),
        as_of=as_of,
        batches=batches,
        union_by_name=union_by_name,
        board=look.board,
    )


def _listed(feed: Feed, partition: str | Iterable[str]) -> list[Partition]:
    """Return the distinct partitions of one key or several keys, in the given order."""
    keys = [partition] if isinstance(partition, str) or not isinstance(partition, Iterable) else [*partition]  # pyright: ignore[reportUnnecessaryIsInstance]
    if not keys:
        raise InvalidName(f"{feed}: found an empty list of partitions, expected at least one key.")
    if ranges := [key for key in map(_key, keys) if "..." in key]:
        raise InvalidName(f"{feed}: found {ranges[0]!r}, expected {_RANGE}, which is exclusive.")
    return [check_partition(Partition(feed, key)) for key in dict.fromkeys(keys)]


def _key(value: object) -> str:
    """Return a partition key if it is a text, otherwise raise InvalidName."""
    return _text(value, "the key of a partition as a text, such as '2026-06-01'")


def _text(value: object, expected: str) -> str:
    if not isinstance(value, str):
        raise InvalidName(f"found {value!r}, expected {expected}.")
    return value


def _checked(as_of: datetime | None) -> datetime | None:
    if as_of is not None and (not isinstance(as_of, datetime) or as_of.utcoffset() is None):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidName(
            f"as_of={as_of!r} is not a moment: expected a datetime with a time zone, such as "
            "datetime(2026, 6, 2, 6, tzinfo=UTC)."
        )
    return as_of
