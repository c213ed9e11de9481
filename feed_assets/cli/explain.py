"""`feed-assets explain`: the verdict that the sensor acts on, in words."""

from typing import TYPE_CHECKING

from feed_assets.cli.feed import AsJson, FeedName, PartitionKey
from feed_assets.cli.location import DEFAULT_MODULE, Module, load_graph, open_bench
from feed_assets.cli.show import show
from feed_assets.core.errors import InvalidName
from feed_assets.core.feeds import Feed, Partition

if TYPE_CHECKING:
    from feed_assets.cli.views import Values
    from feed_assets.core.readiness import Verdict
    from feed_assets.ledger.due import Listed


def explain(
    feed: FeedName, partition: PartitionKey = "", module: Module = DEFAULT_MODULE, as_json: AsJson = False
) -> None:
    """Say whether a partition of a dataset is built, ready, or what it waits for: as the sensor would decide now.

    Without a partition: every one of its partitions that waits, as it was last decided.
    """
    from feed_assets.cli.event_views import VerdictView, WaitingView

    output = Partition(Feed.parse(feed), partition)
    if not partition and (waiting := _waiting(output.feed, module)) is not None:
        view = WaitingView.model_validate({"feed": output.feed, "waiting": waiting})
        return show(view, as_json, "" if waiting else "none of its partitions waits")
    verdict, left_out = _verdict(output, module)
    view = VerdictView.model_validate(verdict).model_copy(update={"left_out": tuple(left_out)})
    return show(view, as_json)


def _waiting(consumer: Feed, module: str) -> "list[Listed] | None":
    """What is on the list of a dataset with partitions; None of one without."""
    from feed_assets.ledger import due
    from feed_assets.ledger.database import open_ledger
    from feed_assets.settings import settings

    if load_graph(module).node(consumer).partitions_def is None:
        return None
    with open_ledger(settings().ledger).read() as connection:
        return [*due.listed(connection, consumer)]


def _verdict(output: Partition, module: str) -> "tuple[Verdict, list[Values]]":
    """The verdict, and the batches of its inputs that have no valid update.

    Inputs are looked at on the blackboard first, so that the answer is about now, not about the last tick.
    """
    from feed_assets.cli.views import Values
    from feed_assets.orchestration.decisions import fan_out, verdicts
    from feed_assets.orchestration.declare.partitions import Standing, standing
    from feed_assets.runs.observe import observe, observe_batches

    graph = load_graph(module)
    node, bench = graph.node(output.feed), open_bench()
    if node.role != "dataset":
        raise InvalidName(f"{output.feed} is a {node.role} feed: expected a dataset. `feed show` tells what it holds.")
    if standing(node.partitions_def, output.key, bench.now()) is not Standing.IS:
        raise InvalidName(f"{output.key!r} is no partition of {output.feed} (yet). Compare its partitions in the UI.")
    need, left_out = graph.need(output), list[Values]()
    for needed in need.inputs:
        if needed.feed in need.tables:
            continue
        if needed.feed in need.appendable:
            reading, _ = observe_batches(bench.board, bench.ledger, needed, bench.now())
            left_out += [Values.of(input=f"{needed.path}/{each.id}", reason=each.reason) for each in reading.left_out]
        else:
            observe(bench.board, bench.ledger, needed, bench.now())
    fan_out(graph, [node], bench.ledger, bench.now(), lambda: False)
    with bench.ledger.read() as connection:
        return verdicts(graph, connection, [output], bench.now())[0], left_out
