"""`feed-assets feed compact`: the compaction of the job `compact`, started by hand."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from feed_assets.cli.feed import AsJson, FeedName
from feed_assets.cli.loaded_location import Module, load_graph, open_services, partition_of
from feed_assets.cli.progress import announced, progress
from feed_assets.cli.project import has_module
from feed_assets.cli.show import show
from feed_assets.cli.terminal import echo
from feed_assets.cli.views import CompactedPartitionView, CompactedView
from feed_assets.core.batch_names import LEAST
from feed_assets.core.compact import UNSORTED, Compact
from feed_assets.core.errors import AlreadyRunning, NotCompacted, NotOurs, PartitionClosed, UpdateChanged
from feed_assets.core.feeds import Feed, Partition

if TYPE_CHECKING:
    from feed_assets.ledger.updates import UpdateRow
    from feed_assets.runs.services import Services

_T = TypeVar("_T")


def compact(
    feed: FeedName,
    partition: Annotated[str | None, typer.Argument(metavar="[PARTITION]", help="By default all of them.")] = None,
    least: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=2, help=f"The least number of batches in a row ({LEAST}), or of files (as in `Compact`)."
        ),
    ] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Compact them. Without --apply nothing is written.")] = False,
    module: Module = None,
    as_json: AsJson = False,
) -> None:
    """Merge small files of our datasets, or the batches of an appendable one, or list them. No consumer runs.

    The rows are sorted as the dataset's option `compact` says. Its `when` does not count: nothing waits for complete
    windows. Left out is what the job `compact` leaves out, too: partitions that are built now, that are closed, whose
    last build failed, or whose readers a check blocks.
    """
    from feed_assets.compaction.batches import partitions_of
    from feed_assets.settings import settings

    echo(f"blackboard: {settings().blackboard}", err=True)
    services, parsed = open_services(makes=False), Feed.parse(feed)
    chosen = None if partition is None else partition_of(feed, partition, module)
    if with_batches := partitions_of(services, parsed):
        policy = _policy(parsed, module) if module or has_module() else None
        _compact_batches(
            services, _chosen(chosen, with_batches), policy or UNSORTED, least, apply=apply, as_json=as_json
        )
    else:
        policy = _policy_of_own(services, parsed, module)
        policy = replace(policy, files=least or policy.files)
        _compact_partitions(services, parsed, chosen, policy, apply=apply, as_json=as_json)


def _policy(feed: Feed, module: str | None) -> Compact | None:
    """Return the option `compact` of a dataset, by default without an order. Return None for an unknown dataset."""
    from feed_assets.orchestration.declare.declarations import Dataset

    node = load_graph(module).by_feed.get(feed)
    return (node.declaration.compact or UNSORTED) if node and isinstance(node.declaration, Dataset) else None


def _policy_of_own(services: "Services", feed: Feed, module: str | None) -> Compact:
    from feed_assets.ledger.pruned_updates import is_ours

    with services.ledger.read() as connection:
        is_own = is_ours(connection, feed)
    if not is_own:
        raise NotOurs(f"{feed} has no update that our runs wrote: expected a dataset of ours. Nothing is compacted.")
    if policy := _policy(feed, module):
        return policy
    raise NotOurs(
        f"{feed} is no dataset of the definitions, so it is unknown how its rows are sorted: expected one of these. "
        "Name their module with -m. Nothing is compacted."
    )


def _chosen(chosen: Partition | None, with_batches: Sequence[Partition]) -> Sequence[Partition]:
    if chosen is None:
        return with_batches
    if chosen not in with_batches:
        raise NotOurs(
            f"{chosen} has no batches that our runs wrote: expected a partition of an appendable dataset. Nothing is "
            "compacted."
        )
    return [chosen]


def _compact_batches(
    services: "Services", chosen: Sequence[Partition], policy: Compact, least: int | None, *, apply: bool, as_json: bool
) -> None:
    from feed_assets.compaction.batches import compact
    from feed_assets.ledger import closures

    def compact_one(at: Partition) -> list[CompactedView]:
        with services.ledger.read() as connection:
            closures.refuse(connection, [at])
        return [*CompactedView.each(compact(services, at, least or LEAST, apply=apply, policy=policy))]

    views = [each for some in _each(chosen, compact_one, len(chosen) == 1) for each in some]
    summary = f"{len(views)} batches were made of {sum(len(each.batches) for each in views)}"
    note = summary if apply or not views else f"{summary.replace('were', 'would be')}: add --apply"
    show(views, as_json, note if views else f"no {least or LEAST} batches are in a row")


def _compact_partitions(
    services: "Services", feed: Feed, chosen: Partition | None, policy: Compact, *, apply: bool, as_json: bool
) -> None:
    from feed_assets.compaction import blocking
    from feed_assets.compaction.due_partitions import fitting
    from feed_assets.compaction.whole_partitions import compact_partition
    from feed_assets.ledger import closures

    with services.ledger.read() as connection:
        rows = {row.partition: row for row in fitting(connection, feed, policy)}

    def compact_one(at: Partition) -> CompactedPartitionView | None:
        if not apply:
            with services.ledger.read() as connection:
                closures.refuse(connection, [at])
            blocking.refuse(services, at)
            return _planned(rows[at], policy)
        done = compact_partition(services, at, policy)
        return CompactedPartitionView.model_validate(done) if done else None

    partitions = [at for at in rows if chosen in (None, at)]
    views = [*filter(None, _each(partitions, compact_one, chosen is not None))]
    summary = f"{len(views)} partitions were compacted"
    note = summary if apply or not views else f"{summary.replace('were', 'would be')}: add --apply"
    nothing = f"no newest update was written by a run and has the files for it: {policy.files} or more, and "
    nothing += "any size" if policy.sort_by else f"twice what its size needs at {policy.target} each"
    show(views, as_json, note if views else nothing)


def _planned(row: "UpdateRow", policy: Compact) -> CompactedPartitionView:
    return CompactedPartitionView(
        partition=row.partition.key,
        before=row.id,
        files_before=row.files or 0,
        files_after=policy.files_for(row.size or 0),
    )


def _each(partitions: Iterable[Partition], compact_one: Callable[[Partition], _T], is_named: bool) -> Iterator[_T]:
    """Yield the result of each partition. Raise the reason of a named one that is left out, and print the others'."""
    with progress() as doing:
        for at in announced([*partitions], doing, "looking at"):
            try:
                yield compact_one(at)
            except (AlreadyRunning, NotCompacted, PartitionClosed, UpdateChanged) as error:
                if is_named:
                    raise
                doing.clear()
                echo(f"left out: {error}", err=True)
