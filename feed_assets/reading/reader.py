"""`feed_assets.read`: the data of a feed's partitions that are valid now."""

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
    """Find the data of a feed's partitions that are valid now, or were as of a time; no file is opened yet.

    Args:
        feed: Name and version, `plant/daily/v1.0`.
        partition: A key such as `2026-06-01` or `2026-06-01/men`, '' for a feed without partitions, or several keys.
        to: The end of a range that begins with `partition`, a day or an hour; `to` itself is not in it.
        as_of: Take the newest update of each partition with an id of then or before; timezone-aware.
        blackboard: A URL, a `Path`, or a name in FEED_ASSETS_BLACKBOARDS; by default FEED_ASSETS_BLACKBOARD.
        batches: The feed is appendable: take every batch of each partition that is in effect.
        grain: The size of a range's partitions: `day`, `hour`, or minutes such as `15min`; by default as its ends are.
        partial: Leave out partitions without a valid update, and name them in `left_out`, if there is another one.
        union_by_name: Allow parts that lack columns: these are NULL there.

    Returns:
        The data: `.paths`, `.schema`, `.update_id`, `.to_arrow()`, `.to_reader()`, `.to_pandas()`,
        `.to_spark(session)`.

    Raises:
        NoValidUpdate: A partition has no valid update; why of each. UpdatePruned is one: that of then was pruned.
        InvalidName: The feed, a key, the range or the time is none.
        BlackboardError: The store does not exist, refuses, or does not answer.
        InvalidSetting: There is no blackboard of this name.
    """
    name, moment = Feed.parse(_text(feed, "the name of a feed as a text, such as 'plant/daily/v1.0'")), _checked(as_of)
    if grain and to is None:
        raise InvalidName(f"grain={grain!r} is of a range, and `to` is not given: expected {_RANGE}. Leave out grain.")
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
    """Return the partitions of one key, or of several, each once, in the order in which they are given."""
    keys = [partition] if isinstance(partition, str) or not isinstance(partition, Iterable) else [*partition]  # pyright: ignore[reportUnnecessaryIsInstance]
    if not keys:
        raise InvalidName(f"{feed}: found an empty list of partitions, expected at least one key.")
    if ranges := [key for key in map(_key, keys) if "..." in key]:
        raise InvalidName(f"{feed}: found {ranges[0]!r}, expected for a range {_RANGE}, which is not in it.")
    return [check_partition(Partition(feed, key)) for key in dict.fromkeys(keys)]


def _key(value: object) -> str:
    """Return what is given as a key of one partition, if it is a text."""
    return _text(value, "the key of a partition as a text, such as '2026-06-01'")


def _text(value: object, expected: str) -> str:
    if not isinstance(value, str):
        raise InvalidName(f"found {value!r}, expected {expected}.")
    return value


def _checked(as_of: datetime | None) -> datetime | None:
    if as_of is not None and (not isinstance(as_of, datetime) or as_of.utcoffset() is None):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidName(
            f"as_of={as_of!r} is no moment: expected a datetime with a time zone, such as "
            "datetime(2026, 6, 2, 6, tzinfo=UTC)."
        )
    return as_of
