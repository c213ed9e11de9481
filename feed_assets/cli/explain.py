"""`feed-assets explain`: the verdict that the sensor acts on, in words."""

import json
from typing import TYPE_CHECKING

import typer

from feed_assets.cli.feed import AsJson, FeedName, PartitionKey
from feed_assets.cli.location import DEFAULT_MODULE, Module, load
from feed_assets.core.errors import InvalidName
from feed_assets.core.feeds import Feed, Partition

if TYPE_CHECKING:
    from feed_assets.core.readiness import Verdict


def explain(
    feed: FeedName, partition: PartitionKey = "", module: Module = DEFAULT_MODULE, as_json: AsJson = False
) -> None:
    """Say whether a partition of a dataset is built, ready, or what it waits for: as the sensor would decide now."""
    verdict, left_out = _verdict(Partition(Feed.parse(feed), partition), module)
    if as_json:
        typer.echo(json.dumps({**_values(verdict), "left_out": left_out}, indent=2))
        return
    typer.echo(f"{verdict.output}: {verdict.state.value}: {verdict.reason}")
    for pin in verdict.pins:
        typer.echo(f"  reads {pin.partition} {pin.update_id} ({pin.files} files, {pin.size} bytes)")
    for each in left_out:
        typer.echo(f"  leaves out {each['input']}: {each['reason']}")


def _verdict(output: Partition, module: str) -> "tuple[Verdict, list[dict[str, str]]]":
    """The verdict, and the batches of its inputs that have no valid update.

    Inputs are looked at on the blackboard first, so that the answer is about now, not about the last tick.
    """
    from feed_assets.orchestration.decisions import verdicts
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
        if needed.feed in need.appendable:
            reading, _ = observe_batches(bench.board, bench.ledger, needed, bench.now())
            left_out += [{"input": f"{needed.path}/{each.id}", "reason": each.reason} for each in reading.left_out]
        else:
            observe(bench.board, bench.ledger, needed, bench.now())
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
    }
