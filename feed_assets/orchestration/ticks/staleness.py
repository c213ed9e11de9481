"""The check `stale` of each dataset. It passes if all built partitions are up to date. It never blocks a run."""

from collections.abc import Mapping, Sequence

import dagster as dg
import sqlalchemy as sa

from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.message_words import shortened
from feed_assets.ledger import quality
from feed_assets.ledger.quality import CheckState
from feed_assets.ledger.status_facts import Stale, stale
from feed_assets.orchestration.declare.declarations import STALE

NAMED = 5
"""Greatest number of partitions that the check's reason names. The table of its metadata names more."""

ROWS = 100
"""Greatest number of rows in the table of the check's result."""


def stale_states(
    connection: sa.Connection,
    feeds: Sequence[Feed],
    recorded: Mapping[tuple[Partition, str], CheckState],
) -> dict[tuple[Partition, str], CheckState]:
    """Return the state of the check `stale` for each dataset that is out of date now, or was at the last check.

    Other datasets get no new result. Otherwise a thousand datasets would cause a thousand results at each tick.
    """
    by_feed: dict[Feed, list[Stale]] = {}
    for each in stale(connection, feeds)[0]:
        by_feed.setdefault(each.partition.feed, []).append(each)
    states = {(Partition(feed, ""), STALE): _state(mine) for feed, mine in by_feed.items()}
    passed = {key: CheckState(quality.PASSED, None) for key in recorded if key[1] == STALE}
    return passed | states


def _state(partitions: Sequence[Stale]) -> CheckState:
    """Return a state whose text has only names of partitions.

    With full reasons, each new number in a reason would cause a new report.
    """
    named = shortened([each.partition.key or "it" for each in partitions], NAMED)
    feed, is_one = partitions[0].partition.feed, len(partitions) == 1
    summary = f"{len(partitions)} partition{'s' * (not is_one)} {'is' if is_one else 'are'} out of date"
    return CheckState(quality.WARNED, f"{summary}: {named}. See `feed-assets status --stale --dataset {feed}`.")


def stale_metadata(connection: sa.Connection, feed: Feed) -> dict[str, dg.MetadataValue]:
    """Return a table of a dataset's partitions that are out of date. Return {} if all are up to date."""
    partitions, in_all = stale(connection, [feed], ROWS)
    if not partitions:
        return {}
    rows = [
        {
            "partition": each.partition.key,
            "verdict": each.state,
            "since": f"{each.since:%Y-%m-%d %H:%M}",
            "why": each.why,
        }
        for each in partitions
    ]
    table = dg.MetadataValue.table([dg.TableRecord(row) for row in rows])
    return {"stale": dg.MetadataValue.int(in_all), "partitions": table}
