"""The step that pulls the files of partners.

It has its own sensor, because other steps must not wait for a long copy.
"""

from collections.abc import Iterable
from datetime import datetime
from functools import partial

from filelock import FileLock, Timeout

from feed_assets.core.isolation import failing_alone
from feed_assets.core.message_words import shortened
from feed_assets.core.pulls import Pull
from feed_assets.core.readiness import NAMED
from feed_assets.home import OWNED, home
from feed_assets.intake.pull import pull
from feed_assets.intake.pull_turns import PullSource, due
from feed_assets.ledger import intake_files
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.nodes import Node
from feed_assets.orchestration.declare.declarations import Foreign
from feed_assets.orchestration.declare.partitions import Existence, existence, times_of
from feed_assets.orchestration.declare.time_windows import key_at
from feed_assets.orchestration.ticks.tick import OutOfTime, Tick


def pull_files(tick: Tick, out_of_time: OutOfTime) -> None:
    """Pull the sources that are due, until the time is over, but at least one.

    Report problems with files at each tick. Only one process per home folder pulls at a time. During a long copy,
    Dagster may give up the tick, but the copy continues. The next ticks pull nothing until the copy has ended.
    """
    sources = pulled(tick.graph, tick.now)
    try:
        with FileLock(home() / ".pull.lock", timeout=0, mode=OWNED):
            _pull_due(tick, sources, out_of_time)
    except Timeout:
        tick.context.log.info("another tick or process of this home is pulling files")
    since = {source.feed: source.pull.told_since(tick.now) for source in sources}
    with tick.ledger.read() as connection:
        wrong = intake_files.wrong(connection, since)
    for feed, files in wrong.items():
        reasons = shortened([f"{each.file.key}: {each.reason}" for each in files], NAMED)
        tick.problems.setdefault(str(feed), f"not pulled: {reasons}. Ask the partner.")


def _pull_due(tick: Tick, sources: Iterable[PullSource], out_of_time: OutOfTime) -> None:
    for number, source in enumerate(due(tick.services, [*sources], tick.now)):
        if number and out_of_time():
            tick.is_complete = False
            return
        with failing_alone(tick.problems, str(source.feed)):
            tick.is_complete &= pull(tick.services, source, tick.now, out_of_time)


def pulled(graph: Graph, now: datetime) -> list[PullSource]:
    """Return the sources to pull into a code location's feeds."""
    declarations = [(node, node.declaration) for node in graph.foreign()]
    return [
        PullSource(node.feed, declared.intake, partial(_key_of, node, now=now))
        for node, declared in declarations
        if isinstance(declared, Foreign) and isinstance(declared.intake, Pull)
    ]


def _key_of(node: Node, moment: datetime, *, now: datetime) -> str | None:
    """Return the key of the partition that contains a moment, even if its time is not over.

    Return None if it can never be a partition.
    """
    times = times_of(node.partitions_def)
    key = key_at(times, moment) if times else None
    if key is None or existence(node.partitions_def, key, now) is Existence.NEVER:
        return None
    return key
