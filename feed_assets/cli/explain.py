"""`feed-assets explain`: the verdict that the sensor acts on, in words."""

import json
from typing import TYPE_CHECKING

import typer

from feed_assets.cli.events import due_values
from feed_assets.cli.feed import AsJson, FeedName, PartitionKey
from feed_assets.cli.location import DEFAULT_MODULE, Module, load
from feed_assets.core.errors import InvalidName
from feed_assets.core.events import in_words
from feed_assets.core.feeds import Feed, Partition

if TYPE_CHECKING:
    from feed_assets.core.readiness import Verdict
    from feed_assets.ledger.due import Listed


def explain(
    feed: FeedName, partition: PartitionKey = "", module: Module = DEFAULT_MODULE, as_json: AsJson = False
) -> None:
    """Say whether a partition of a dataset is built, ready, or what it waits for: as the sensor would decide now.

    Without a partition: every one of its partitions that waits, as it was last decided.
    """
    output = Partition(Feed.parse(feed), partition)
    if not partition and (waiting := _waiting(output.feed, module)) is not None:
        _print_waiting(output.feed, waiting, as_json)
        return
    verdict, left_out = _verdict(output, module)
    if as_json:
        typer.echo(json.dumps({**_values(verdict), "left_out": left_out}, indent=2))
        return
    typer.echo(f"{verdict.output}: {verdict.state.value}: {verdict.reason}")
    for pin in verdict.pins:
        typer.echo(f"  reads {pin.partition} {pin.update_id} ({pin.files} files, {pin.size} bytes)")
    for each in verdict.due.slices if verdict.due else ():
        typer.echo(f"  takes {each.place} after {in_words(each.start)} up to {in_words(each.end)}")
    for each in verdict.due.incomplete if verdict.due else ():
        typer.echo(f"  waits since {each.since:%Y-%m-%d %H:%M} UTC: update {each}")
    for each in left_out:
        typer.echo(f"  leaves out {each['input']}: {each['reason']}")


def _waiting(consumer: Feed, module: str) -> "list[Listed] | None":
    """What is on the list of a dataset with partitions; None of one without."""
    from feed_assets.ledger import due
    from feed_assets.ledger.database import open_ledger
    from feed_assets.orchestration.graph import Graph
    from feed_assets.settings import settings

    if Graph(load(module).resolve_asset_graph()).node(consumer).partitions_def is None:
        return None
    with open_ledger(settings().ledger).read() as connection:
        return [*due.listed(connection, consumer)]


def _print_waiting(consumer: Feed, waiting: "list[Listed]", as_json: bool) -> None:
    if as_json:
        rows = [{**vars(each), "since": each.since.isoformat()} for each in waiting]
        typer.echo(json.dumps({"feed": str(consumer), "waiting": rows}, indent=2))
        return
    for each in waiting:
        state = each.state or "not decided yet"
        typer.echo(f"{consumer} {each.partition}: {state}, since {each.since:%Y-%m-%d %H:%M} UTC: {each.reason or ''}")
    if not waiting:
        typer.echo(f"{consumer}: none of its partitions waits")


def _verdict(output: Partition, module: str) -> "tuple[Verdict, list[dict[str, str]]]":
    """The verdict, and the batches of its inputs that have no valid update.

    Inputs are looked at on the blackboard first, so that the answer is about now, not about the last tick.
    """
    from feed_assets.orchestration.decisions import fan_out, verdicts
    from feed_assets.orchestration.graph import Graph
    from feed_assets.orchestration.partitions import Standing, standing
    from feed_assets.runs.observe import observe, observe_batches
    from feed_assets.runs.workbench import Workbench
    from feed_assets.settings import settings

    graph = Graph(load(module).resolve_asset_graph())
    node, bench = graph.node(output.feed), Workbench.of(settings())
    if node.role != "dataset":
        raise InvalidName(f"{output.feed} is a {node.role} feed: expected a dataset. `feed show` tells what it holds.")
    if standing(node.partitions_def, output.key, bench.now()) is not Standing.IS:
        raise InvalidName(f"{output.key!r} is no partition of {output.feed} (yet). Compare its partitions in the UI.")
    need, left_out = graph.need(output), list[dict[str, str]]()
    for needed in need.inputs:
        if needed.feed in need.tables:
            continue
        if needed.feed in need.appendable:
            reading, _ = observe_batches(bench.board, bench.ledger, needed, bench.now())
            left_out += [{"input": f"{needed.path}/{each.id}", "reason": each.reason} for each in reading.left_out]
        else:
            observe(bench.board, bench.ledger, needed, bench.now())
    fan_out(graph, [node], bench.ledger, bench.now(), lambda: False)
    with bench.ledger.read() as connection:
        return verdicts(graph, connection, [output], bench.now())[0], left_out


def _values(verdict: "Verdict") -> dict[str, object]:
    reads = [{"input": pin.partition.path, "update_id": pin.update_id, "version": pin.version} for pin in verdict.pins]
    return {
        "feed": str(verdict.output.feed),
        "partition": verdict.output.key,
        "state": verdict.state.value,
        "reason": verdict.reason,
        "published": verdict.published,
        "reads": reads,
        "due": due_values(verdict.due) if verdict.due else None,
    }
