"""`feed-assets feed`: look at, copy and invalidate updates of any File Feed on any blackboard."""

from datetime import UTC, datetime
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from feed_assets.cli import update_notes, views
from feed_assets.cli.loaded_location import Module, dynamic_partitions, ledger_of_settings, load_graph, partition_of
from feed_assets.cli.show import Values
from feed_assets.cli.show import show as say
from feed_assets.cli.terminal import echo
from feed_assets.core.batch_names import held_by
from feed_assets.core.errors import InvalidName, NoValidUpdate
from feed_assets.core.feeds import Feed, Partition, is_update_id, parse_update_id

if TYPE_CHECKING:
    from feed_assets.feeds.blackboard import Blackboard
    from feed_assets.feeds.read import Reading

app = typer.Typer(help="Look at feeds, copy from them, publish to them, and invalidate updates.", no_args_is_help=True)

FeedName = Annotated[str, typer.Argument(metavar="FEED", help="Name and version: ads/shown/v1.0.")]
PartitionKey = Annotated[str, typer.Argument(metavar="PARTITION", help="Partition key: 2019-11-24/men; '' if none.")]
Board = Annotated[
    str | None,
    typer.Option(
        "--blackboard", metavar="URL", help="file://, s3://, az:// or gs:// URL, or a name in FEED_ASSETS_BLACKBOARDS."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
Batches = Annotated[bool, typer.Option("--batches", help="For an appendable feed: every batch of the partition.")]
Unknown = Annotated[
    bool, typer.Option("--unknown", help="List feeds and partitions that no declaration covers, with similar names.")
]
UpdateId = Annotated[str | None, typer.Option("--update", metavar="ID", help="This update: 20191125.060000.")]


class How(StrEnum):
    """The protocol's two ways to invalidate an update."""

    MANIFEST = "manifest"
    FILE = "file"


def report(action: str, board: "Blackboard", partition: Partition, update_id: str) -> None:
    """Print that a command changed a feed. If the ledger belongs to this blackboard, record the change there."""
    from feed_assets.runs.sync import sync_one

    if _is_of_settings(board):
        sync_one(board, ledger_of_settings(), partition, update_id, datetime.now(UTC))
    echo(f"{action} {partition} {update_id}", err=True)


def _is_of_settings(board: "Blackboard") -> bool:
    """Return whether the ledger of the settings belongs to this blackboard, which then is one of ours."""
    from feed_assets.settings import settings

    return board.url.rstrip("/") in {each.url.rstrip("/") for each in settings().own_places.values()}


@app.command("ls")
def list_feeds(
    feed: Annotated[str | None, typer.Argument(metavar="[FEED]", help="List its partitions.")] = None,
    partition: Annotated[str | None, typer.Argument(metavar="[PARTITION]", help="List its updates.")] = None,
    all_batches: Batches = False,
    unknown: Unknown = False,
    module: Module = None,
    blackboard: Board = None,
    as_json: AsJson = False,
) -> None:
    """List the feeds, the partitions of a feed, or the updates (or batches) of a partition.

    With --unknown, list feeds, and partitions of declared feeds, that no declaration covers. No dataset reads them.
    """
    from feed_assets.feeds import batch_set, read
    from feed_assets.feeds.opened import name_in

    board = open_board(blackboard)
    if unknown:
        return say(_unknown(board, module, name_in(blackboard)), as_json)
    if feed is None:
        return say([Values.of(feed=str(each)) for each in read.feeds(board)], as_json)
    if partition is None:
        return say(views.KeyView.each(read.walk(board, Feed.parse(feed))), as_json)
    feed_partition = partition_of(feed, partition)
    if all_batches:
        return say(views.BatchView.of_set(batch_set.latest(board, feed_partition)), as_json)
    return say(update_notes.history(board, feed_partition, is_ours=_is_of_settings(board)), as_json)


def _unknown(board: "Blackboard", module: str | None, name: str | None) -> list[Values]:
    from feed_assets.feeds import read
    from feed_assets.orchestration.decide.undeclared import unknown_feeds, unknown_partitions

    graph, now = load_graph(module), datetime.now(UTC)
    with dynamic_partitions(graph):
        feeds = unknown_feeds(graph, board, ledger_of_settings(makes=False))
        unknowns = [Values.of(feed=str(feed), partition="", why=why) for feed, why in feeds.items()]
        for node in (node for feed, node in graph.by_feed.items() if graph.elsewhere.get(feed) == name):
            walked = [*read.walk(board, node.feed, is_appendable=node.is_appendable)]
            keys = [each.key for each in walked if isinstance(each, Partition)]
            strange = {at.key: why for at, why in unknown_partitions(node, keys, now).items()}
            strange |= {each.id: each.reason for each in walked if not isinstance(each, Partition)}
            unknowns += [Values.of(feed=str(node.feed), partition=name, why=why) for name, why in strange.items()]
    return unknowns


@app.command()
def show(
    feed: FeedName,
    partition: PartitionKey = "",
    all_batches: Batches = False,
    blackboard: Board = None,
    as_json: AsJson = False,
) -> None:
    """Show the newest valid update (or batches), what was skipped and why, newer feed versions, and all updates."""
    from feed_assets.feeds import batch_set, read

    board, feed_partition = open_board(blackboard), partition_of(feed, partition)
    newer = tuple(map(str, read.newer_versions(board, feed_partition.feed)))
    if all_batches:
        reading = batch_set.latest(board, feed_partition)
        note = f"{len(reading.updates) + len(reading.replaced)} of {len(reading.batches)} batches have a valid update"
        note += f"; {len(reading.replaced)} are read as part of a combined batch instead" if reading.replaced else ""
        set_view = views.ShownSetView.model_validate(reading)
        return say(set_view.model_copy(update={"newer_versions": newer}), as_json, note)
    is_ours, newest = _is_of_settings(board), read.latest(board, feed_partition)
    history = update_notes.history(board, feed_partition, is_ours=is_ours)
    _refuse_batches(newest)
    left_out, needed = update_notes.went_without(newest.update, is_ours=is_ours) if newest.update else ((), 0)
    notes = [f"it was built without {len(left_out)} of {needed} partitions of its inputs"] if left_out else []
    notes += update_notes.copies_of(newest.update, is_ours=is_ours) if newest.update else []
    fields = {"newer_versions": newer, "went_without": left_out, "history": history}
    return say(views.FeedReadingView.model_validate(newest).model_copy(update=fields), as_json, "\n".join(notes))


def _refuse_batches(reading: "Reading") -> None:
    """Raise NoValidUpdate for a partition whose only entries are batches, not updates."""
    if not reading.update and reading.skipped and not any(is_update_id(each.id) for each in reading.skipped):
        raise NoValidUpdate(
            f"{reading.partition} has no update of its own, but {len(reading.skipped)} batches, such as "
            f"{reading.skipped[0].id}: add --batches to read these."
        )


@app.command()
def get(
    feed: FeedName,
    partition: PartitionKey,
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="A new or empty folder.")],
    as_of: Annotated[str | None, typer.Option("--as-of", metavar="TIME", help="ISO 8601 (UTC), or an id.")] = None,
    update: UpdateId = None,
    all_batches: Batches = False,
    blackboard: Board = None,
    as_json: AsJson = False,
) -> None:
    """Copy the files of the newest valid update (or of every batch). Choose an older one by --as-of or --update."""
    from feed_assets.feeds import batch_set, read

    if update and (as_of or all_batches):
        raise InvalidName("--as-of or --batches and --update exclude each other: give one of them.")
    board, feed_partition = open_board(blackboard), partition_of(feed, partition)
    moment = _moment(as_of) if as_of else None
    if all_batches:
        reading = batch_set.latest(board, feed_partition, moment)
        batch_set.download(board, reading, to)
        return say(views.SetView.model_validate(reading), as_json)
    newest = None if update else read.latest(board, feed_partition, moment)
    if newest:
        _refuse_batches(newest)
    chosen_update = read.require(newest, moment) if newest else read.named(board, feed_partition, update or "")
    read.download(board, chosen_update, to)
    return say(views.UpdateView.model_validate(chosen_update), as_json)


@app.command()
def verify(
    feed: FeedName,
    partition: Annotated[str | None, typer.Argument(metavar="[PARTITION]", help="By default all of them.")] = None,
    update: UpdateId = None,
    all_batches: Batches = False,
    deep: Annotated[
        bool, typer.Option("--deep", help="Read every byte, and compare our own updates' rows with what was published.")
    ] = False,
    blackboard: Board = None,
    as_json: AsJson = False,
) -> None:
    """Check that the newest update (or every batch), or a named one, is valid. If not, say why; the exit code is 1.

    With --deep: read every page for damage, and check that an update of ours still has the rows that its run
    published.
    """
    from feed_assets.cli.deep_verify import edits, verify_deep
    from feed_assets.feeds import batch_set, read

    board, parsed = open_board(blackboard), Feed.parse(feed)
    if update:
        updates = [read.named(board, partition_of(feed, partition or ""), update)]
        if deep:
            return verify_deep(board, updates, is_ours=_is_of_settings(board), as_json=as_json)
        return say(views.UpdateView.each(updates), as_json)
    if all_batches:
        readings = [*batch_set.latest(board, partition_of(feed, partition or "")).batches]
    else:
        keys = read.partitions(board, parsed) if partition is None else [partition_of(feed, partition)]
        readings = [read.latest(board, key) for key in keys]
    valid = {reading.partition for reading in readings if reading.update}
    readings = [each for each in readings if each.update or not held_by(each.partition, valid)]
    if not readings:
        raise NoValidUpdate(f"{parsed} has no partition with updates: there is nothing to verify at {parsed}/.")
    changed = edits([each.update for each in readings if each.update], is_ours=_is_of_settings(board))
    verified = [views.VerifiedView.of(each, changed) for each in readings]
    if deep:
        updates = [reading.update for reading in readings if reading.update]
        verify_deep(board, updates, is_ours=_is_of_settings(board), as_json=as_json)
    else:
        say(verified, as_json)
    if bad := [view for view in verified if view.problem]:
        count = f"{len(bad)} of {len(verified)} partitions are bad"
        raise NoValidUpdate(f"{bad[0].feed} {bad[0].partition}: {bad[0].problem}. {count}.")
    return None


@app.command()
def invalidate(
    feed: FeedName,
    partition: PartitionKey,
    update: Annotated[str, typer.Argument(metavar="UPDATE", help="The update's id: 20191125.060000.")],
    how: Annotated[How, typer.Option(help="Remove the manifest, or add an empty file.")] = How.MANIFEST,
    blackboard: Board = None,
    as_json: AsJson = False,
) -> None:
    """Make an update invalid: readers return to the valid update before it.

    Updates with the same rows, because one was compacted from the other, become invalid together.
    """
    from feed_assets.feeds import batch_set, read, write

    board, feed_partition = open_board(blackboard), partition_of(feed, partition)
    reported = set[str]()
    # After a kill between two updates, repeat the command. A compaction in progress may seal its update after the first
    # look at it: the second round finds it. Later, the compaction itself sees that the replaced update is invalid.
    for each in chain.from_iterable(_with_same_rows(board, feed_partition, update) for _ in range(2)):
        try:
            write.invalidate(board, feed_partition, each, how=how.value)
        except NoValidUpdate:
            if each == update:
                raise
            continue  # A compaction has claimed it, and has written nothing yet.
        if each not in reported:
            reported.add(each)
            report("invalidated", board, feed_partition, each)
    if held := batch_set.held_by(board, feed_partition):
        echo(
            f"{feed_partition}: its rows are still read, because {held.name} contains them. If a run by events made "
            "this batch, a new run replaces them. Otherwise invalidate the combined batch, too: readers then return to "
            "the batches that it replaced.",
            err=True,
        )
    say(views.ReadingView.model_validate(read.latest(board, feed_partition)), as_json)


def _with_same_rows(board: "Blackboard", partition: Partition, update_id: str) -> list[str]:
    """Return an update, and the valid updates with the same rows that the settings' ledger knows, newest first."""
    from feed_assets.ledger.compacted_partitions import valid_with_same_rows

    if not _is_of_settings(board):
        return [update_id]
    with ledger_of_settings().read() as connection:
        return valid_with_same_rows(connection, partition, update_id)


def open_board(url: str | None, *, makes: bool = False) -> "Blackboard":
    """Open the blackboard of a URL or a name.

    Without a URL or name, open the blackboard of the settings, and print which one it is. `makes` creates the
    blackboard's folder if the folder is missing. Only commands that write set `makes`.
    """
    from feed_assets.feeds.opened import board_at
    from feed_assets.settings import settings

    if url is None:
        echo(f"blackboard: {settings().blackboard}", err=True)
    return board_at(settings(), url, makes=makes)


def _moment(text: str) -> datetime:
    if moment := parse_update_id(text):
        return moment
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidName(f"{text!r} is not a time: expected ISO 8601 such as 2019-11-25T06:00Z, or an id.") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
