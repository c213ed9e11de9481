"""Alerts for datasets by events whose newest code is slower than the code before. The alerts resolve themselves.

Source: "Data Orchestration via Events" (2024), which analyzes the duration from A to B with each code change.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

from feed_assets.core.durations import Duration, compared, trend
from feed_assets.core.feeds import Feed
from feed_assets.ledger import alerts, event_store
from feed_assets.ledger.alerts import Alert
from feed_assets.ledger.database import Ledger, get_cursors, put_cursors
from feed_assets.ledger.update_durations import durations_of
from feed_assets.orchestration.decide.alert_owner import OwnAlerts
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.settings import settings

SLOWER = "slower"
"""The kind of alerts about slow code.

Names continue with the dataset, `|`, and the table from which durations count.
"""

UPDATES_LOOKED_AT = 100
"""Number of newest updates to compare per dataset.

Once the new code has made all of them, there is no update by older code to compare with, and the alert resolves.
"""


def keep_slower(graph: Graph, ledger: Ledger, now: datetime, own_alerts: OwnAlerts) -> None:
    """Open and resolve the alerts about slow code. Check only datasets with new events since the last check.

    Open alerts of other datasets stay. The cursors move last. So if the process is killed, the next tick checks again.
    """
    factor = settings().slower_factor
    pairs = {node.feed: [each.feed for each in graph.parents(node)] for node in graph.datasets() if node.by_events}
    with ledger.read() as connection:
        newest = event_store.newest_of(connection, pairs)
        last = {_cursor(feed): f"{each.sequence} {factor}" for feed, each in newest.items()}
        cursors = get_cursors(connection, last.keys())
        new = {feed: firsts for feed, firsts in pairs.items() if last.get(_cursor(feed)) != cursors.get(_cursor(feed))}
        durations_by_pair = durations_of(connection, new, UPDATES_LOOKED_AT) if new and factor else {}
        opened = alerts.open_alerts(connection)
    kept = {key: why for feed, key, why in _open(opened) if feed in pairs.keys() - new.keys()}
    alerts.keep(ledger, SLOWER, kept | _slower(durations_by_pair, factor), now, own_alerts.has_feed)
    if moved := {name: value for name, value in last.items() if cursors.get(name) != value}:
        with ledger.write() as connection:
            put_cursors(connection, moved)


def _cursor(feed: Feed) -> str:
    return f"durations looked at of {feed}"


def _open(opened: Iterable[Alert]) -> Iterable[tuple[Feed, str, str]]:
    """Yield the dataset, the name without the kind, and the reason of each open alert about slow code."""
    for each in opened:
        kind, _, key = each.name.partition(":")
        if kind == SLOWER:
            yield Feed.parse(key.partition("|")[0]), key, each.reason


def _slower(durations_by_pair: Mapping[tuple[Feed, Feed], Iterable[Duration]], factor: float) -> dict[str, str]:
    """Return the reasons of the alerts to open, by the alert's name without its kind: `<last table>|<first table>`."""
    reasons: dict[str, str] = {}
    for (first, last), durations in durations_by_pair.items():
        comparison = compared(trend(durations))
        if comparison and comparison.times > factor:
            reasons[f"{last}|{first}"] = (
                f"{last} is slower since its code has changed. For updates from {first}, {comparison}; expected at "
                f"most {factor:g} times. See `feed-assets events stats {first} {last}`, and FEED_ASSETS_SLOWER_FACTOR."
            )
    return reasons
