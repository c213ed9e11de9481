"""`feed-assets feed`: any File Feed on any blackboard."""

from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feed_assets.core.errors import InvalidName, NoValidUpdate
from feed_assets.core.feeds import Feed, Partition, Skipped, Update, is_update_id, parse_update_id

if TYPE_CHECKING:
    from feed_assets.feeds.batches import SetReading
    from feed_assets.feeds.blackboard import Blackboard
    from feed_assets.feeds.read import Reading

app = typer.Typer(help="Look at feeds, copy from them, publish to them, and invalidate updates.", no_args_is_help=True)

FeedName = Annotated[str, typer.Argument(metavar="FEED", help="Name and version: ads/shown/v1.0.")]
PartitionKey = Annotated[str, typer.Argument(metavar="PARTITION", help="Partition key: 2019-11-24/men; '' if none.")]
Board = Annotated[str | None, typer.Option("--blackboard", metavar="URL", help="file://, s3://, az:// or gs:// URL.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
Batches = Annotated[bool, typer.Option("--batches", help="Of an appendable feed: every batch of the partition.")]
UpdateId = Annotated[str | None, typer.Option("--update", metavar="ID", help="This update: 20191125.060000.")]


class How(StrEnum):
    """The protocol's two ways to invalidate an update."""

    MANIFEST = "manifest"
    FILE = "file"


def tell(what: str, board: "Blackboard", partition: Partition, update_id: str) -> None:
    """Say that this command line has changed a feed, and let the ledger learn of it if the blackboard is its own."""
    from feed_assets.ledger.database import open_ledger
    from feed_assets.runs.observe import observe
    from feed_assets.settings import settings

    if board.url.rstrip("/") == settings().blackboard.rstrip("/"):
        observe(board, open_ledger(settings().ledger), partition, datetime.now(UTC))
    typer.echo(f"{what} {partition} {update_id}", err=True)


@app.command("ls")
def list_feeds(
    feed: Annotated[str | None, typer.Argument(metavar="[FEED]", help="List its partitions.")] = None,
    partition: Annotated[str | None, typer.Argument(metavar="[PARTITION]", help="List its updates.")] = None,
    all_batches: Batches = False,
    blackboard: Board = None,
    as_json: AsJson = False,
) -> None:
    """List the feeds, the partitions of a feed, or the updates (or batches) of a partition."""
    from feed_assets.feeds import batches, read

    board = _open(blackboard)
    if feed is None:
        rows = [{"feed": str(found)} for found in read.feeds(board)]
    elif partition is None:
        rows = [_partition_row(found) for found in read.walk(board, Feed.parse(feed))]
    elif all_batches:
        rows = _batch_rows(batches.latest(board, Partition(Feed.parse(feed), partition)))
    else:
        rows = [_update_row(found) for found in read.history(board, Partition(Feed.parse(feed), partition))]
    _print(rows, rows, as_json)


@app.command()
def show(
    feed: FeedName,
    partition: PartitionKey = "",
    all_batches: Batches = False,
    blackboard: Board = None,
    as_json: AsJson = False,
) -> None:
    """Show the newest valid update (or batches), what was skipped and why, newer versions of the feed, all updates."""
    from feed_assets.feeds import batches, read

    board, wanted = _open(blackboard), Partition(Feed.parse(feed), partition)
    newer = [str(found) for found in read.newer_versions(board, wanted.feed)]
    if all_batches:
        held = batches.latest(board, wanted)
        rows = _batch_rows(held)
        if not as_json:
            typer.echo(f"{wanted}: {len(held.updates)} of {len(rows)} batches have a valid update")
        return _print({**_set(held), "newer_versions": newer}, rows, as_json)
    reading = read.latest(board, wanted)
    history = [_update_row(found) for found in read.history(board, wanted)]
    shown = {**_reading(reading), "newer_versions": newer, "history": history}
    lines = [f"{wanted}: {_sentence(reading)}", *(f"skipped {skip.id}: {skip.reason}" for skip in reading.skipped)]
    lines += [f"a newer version exists: {name}" for name in newer]
    if as_json:
        return _print(shown, [], as_json)
    typer.echo("\n".join(lines))
    return _print(shown, history, as_json)


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
    """Copy the files of the newest valid update (of every batch), of the newest as of a time, or of the one named."""
    from feed_assets.feeds import batches, read

    if update and (as_of or all_batches):
        raise InvalidName("--as-of or --batches and --update exclude each other: give one of them.")
    board, wanted = _open(blackboard), Partition(Feed.parse(feed), partition)
    moment = _moment(as_of) if as_of else None
    if all_batches:
        held = batches.latest(board, wanted, moment)
        batches.download(board, held, to)
        return _print(_set(held), _batch_rows(held), as_json)
    found = read.named(board, wanted, update) if update else read.require(read.latest(board, wanted, moment))
    read.download(board, found, to)
    return _print(_update(found), [_update_row(found)], as_json)


@app.command()
def publish(
    feed: FeedName,
    partition: PartitionKey,
    files: Annotated[list[Path], typer.Argument(exists=True, dir_okay=False, readable=True, help="The parts.")],
    blackboard: Board = None,
    as_json: AsJson = False,
) -> None:
    """Publish files as a new update."""
    from feed_assets.feeds import write

    parts = {file.name: file for file in files}
    if len(parts) < len(files):
        raise InvalidName("Two of the files have the same name: each name can be one part only. Rename one.")
    board, wanted = _open(blackboard, create=blackboard is None), Partition(Feed.parse(feed), partition)
    update = write.publish(board, wanted, parts, datetime.now(UTC))
    tell("published", board, wanted, update.id)
    _print(_update(update), [_update_row(update)], as_json)


@app.command()
def verify(
    feed: FeedName,
    partition: Annotated[str | None, typer.Argument(metavar="[PARTITION]", help="Otherwise all of them.")] = None,
    update: UpdateId = None,
    all_batches: Batches = False,
    blackboard: Board = None,
    as_json: AsJson = False,
) -> None:
    """Check that the newest update (of every batch), or the one named, is valid; exit code 1 and why if it is not."""
    from feed_assets.feeds import batches, read

    board, parsed = _open(blackboard), Feed.parse(feed)
    if update:
        found = read.named(board, Partition(parsed, partition or ""), update)
        return _print([_update(found)], [_update_row(found)], as_json)
    if all_batches:
        readings = [*batches.latest(board, Partition(parsed, partition or "")).batches]
    else:
        keys = read.partitions(board, parsed) if partition is None else [Partition(parsed, partition)]
        readings = [read.latest(board, key) for key in keys]
    if not readings:
        raise NoValidUpdate(f"{parsed} has no partition with updates: there is nothing to verify at {parsed}/.")
    bad = [reading for reading in readings if _why_bad(reading)]
    rows = [{"partition": reading.partition.key, "problem": _why_bad(reading)} for reading in readings]
    _print([{**_reading(reading), "problem": _why_bad(reading)} for reading in readings], rows, as_json)
    if bad:
        raise NoValidUpdate(
            f"{bad[0].partition}: {_why_bad(bad[0])}. {len(bad)} of {len(readings)} partitions are bad."
        )
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
    """Make an update invalid: readers go back to the one before."""
    from feed_assets.feeds import read, write

    board, wanted = _open(blackboard), Partition(Feed.parse(feed), partition)
    write.invalidate(board, wanted, update, how=how.value)
    tell("invalidated", board, wanted, update)
    reading = read.latest(board, wanted)
    if not as_json:
        typer.echo(f"{wanted}: {_sentence(reading)}")
    _print(_reading(reading), [], as_json)


def _open(url: str | None, *, create: bool = False) -> "Blackboard":
    from feed_assets.feeds.blackboard import Blackboard
    from feed_assets.settings import settings

    if url is None:
        url = settings().blackboard
        typer.echo(f"blackboard: {url}", err=True)
    return Blackboard.open(url, endpoint=settings().s3_endpoint, create=create)


def _moment(text: str) -> datetime:
    if moment := parse_update_id(text):
        return moment
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidName(f"{text!r} is no time: expected ISO 8601 such as 2019-11-25T06:00Z, or an id.") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _why_bad(reading: "Reading") -> str:
    """Why the newest update of a partition is not valid; '' if it is."""
    newest = next((skip for skip in reading.skipped if is_update_id(skip.id)), None)
    if newest:
        return f"{newest.id}: {newest.reason}"
    return "" if reading.update else "it has no update"


def _sentence(reading: "Reading") -> str:
    found = reading.update
    return f"{found.id} is valid, {len(found.files)} files, {found.size} bytes" if found else "no valid update"


def _reading(reading: "Reading") -> dict[str, Any]:
    skipped = [{"id": skip.id, "reason": skip.reason} for skip in reading.skipped]
    latest = _update(reading.update) if reading.update else None
    return {**_names(reading.partition), "latest": latest, "skipped": skipped}


def _set(held: "SetReading") -> dict[str, Any]:
    left_out = [{"id": each.id, "reason": each.reason} for each in held.left_out]
    return {**_names(held.partition), "batches": [_reading(batch) for batch in held.batches], "left_out": left_out}


def _batch_rows(held: "SetReading") -> list[dict[str, Any]]:
    """Each batch with its newest valid update; one without, or a name that is no batch, with the reason."""
    valid = [{"batch": update.partition.name, **_update_row(update)} for update in held.updates]
    return valid + [{"batch": left.id, **_update_row(Skipped("", left.reason))} for left in held.left_out]


def _update(update: Update) -> dict[str, Any]:
    files = [{"key": file.key, "size": file.size, "etag": file.etag} for file in update.files]
    return {**_names(update.partition), "id": update.id, "bytes": update.size, "files": files}


def _names(partition: Partition) -> dict[str, str]:
    return {"feed": str(partition.feed), "partition": partition.key}


def _update_row(found: Update | Skipped) -> dict[str, Any]:
    if isinstance(found, Skipped):
        return {"id": found.id, "valid": False, "files": None, "bytes": None, "reason": found.reason}
    return {"id": found.id, "valid": True, "files": len(found.files), "bytes": found.size, "reason": ""}


def _partition_row(found: Partition | Skipped) -> dict[str, Any]:
    if isinstance(found, Skipped):
        return {"partition": found.id, "skipped": found.reason}
    return {"partition": found.key, "skipped": ""}


def _print(data: object, rows: Sequence[dict[str, Any]], as_json: bool) -> None:
    """JSON of `data` for machines, a table of `rows` for humans."""
    import json

    from rich.console import Console
    from rich.table import Table

    if as_json:
        typer.echo(json.dumps(data, indent=2))
    elif rows:
        table = Table(box=None, pad_edge=False)
        for name in rows[0]:
            table.add_column(name, overflow="fold")
        for row in rows:
            table.add_row(*("" if value is None else str(value) for value in row.values()))
        Console(markup=False, emoji=False, highlight=False).print(table)
