"""`feed-assets explain`: the verdict that the sensor acts on, in words."""

from typing import TYPE_CHECKING

from feed_assets.cli.feed import AsJson, FeedName, PartitionKey
from feed_assets.cli.location import Module, load_graph, open_services
from feed_assets.cli.show import Values, show
from feed_assets.cli.views import CameBackView, UnreadView, VerdictView, WaitingView
from feed_assets.core.errors import InvalidName
from feed_assets.core.failures import failing_alone
from feed_assets.core.feeds import Feed, Partition

if TYPE_CHECKING:
    from feed_assets.core.readiness import Need
    from feed_assets.orchestration.decide.graph import Graph
    from feed_assets.orchestration.decide.nodes import Node
    from feed_assets.runs.services import Services


def explain(feed: FeedName, partition: PartitionKey = "", module: Module = None, as_json: AsJson = False) -> None:
    """Say whether a partition of a dataset is built, ready, or what it waits for: as the sensor would decide now.

    Without a partition: every one of its partitions that waits, as it was last decided. What no tick has read of its
    event sources is read first; where that cannot be, it is said why, and when it was read last.
    """
    from feed_assets.ledger import due
    from feed_assets.orchestration.decide.decisions import fan_out_to
    from feed_assets.orchestration.ticks.ingest import ingest_for

    output, graph, services = Partition(Feed.parse(feed), partition), load_graph(module), open_services(makes=False)
    node = _dataset(graph, output.feed)
    unread = UnreadView.each(ingest_for(graph, services, [node], services.now()))
    if partition or node.partitions_def is None:
        view = _decided(graph, services, node, output)
        return show(view.model_copy(update={"unread": unread}), as_json)
    fan_out_to(graph, [node], services.ledger, services.now(), lambda: False)
    with services.ledger.read() as connection:
        waiting = WaitingView.model_validate({"feed": feed, "waiting": due.listed(connection, node.feed)})
    note = "" if waiting.waiting else "none of its partitions waits"
    return show(waiting.model_copy(update={"unread": unread}), as_json, note)


def _dataset(graph: "Graph", feed: Feed) -> "Node":
    node = graph.node(feed)
    if node.role != "dataset":
        raise InvalidName(f"{feed} is a {node.role} feed: expected a dataset. `feed show` says what it holds.")
    return node


def _decided(graph: "Graph", services: "Services", node: "Node", output: Partition) -> VerdictView:
    """The verdict of now, not of the last tick: inputs are looked at on the blackboard first."""
    from feed_assets.ledger import due, inbox
    from feed_assets.orchestration.decide.decisions import fan_out_to, verdicts
    from feed_assets.orchestration.declare.partitions import Existence, existence

    if existence(node.partitions_def, output.key, services.now()) is not Existence.EXISTS:
        raise InvalidName(f"{output.key!r} is no partition of {output.feed} (yet). Compare its partitions in the UI.")
    problems, needs = dict[str, str](), list["Need"]()
    with failing_alone(problems, output.key):  # A mapping may be anybody's, and a lineage table out of reach.
        needs.append(graph.need(output))
    if problems:
        return VerdictView(
            feed=str(output.feed), partition=output.key, state=due.UNDECIDED, reason=problems[output.key]
        )
    left_out = _sync_inputs(services, needs[0])
    fan_out_to(graph, [node], services.ledger, services.now(), lambda: False)
    with services.ledger.read() as connection:
        (verdict,) = verdicts(graph, connection, [output], services.now())
        listed = [each for each in due.listed(connection, output.feed) if each.partition == output]
        came_back = tuple(map(CameBackView.model_validate, inbox.came_back(connection, output)))
    asked = [{"requested": each.requested, "next_request": each.look_at} for each in listed if each.requested]
    more = {"left_out": left_out, "came_back": came_back, **(asked[0] if asked else {})}
    return VerdictView.model_validate(verdict).model_copy(update=more)


def _sync_inputs(services: "Services", need: "Need") -> tuple[Values, ...]:
    """Record the newest updates of the output and of its inputs; the batches among these that have no valid one."""
    from feed_assets.core.inputs import AbsentInput, SetInput, TableInput, UpdateInput
    from feed_assets.runs.sync import sync, sync_batches

    left_out: list[Values] = []
    sync(services.board, services.ledger, need.output, services.now())
    for needed in need.inputs:
        match needed:
            case SetInput(partition=at):
                reading, _ = sync_batches(services.board, services.ledger, at, services.now())
                left_out += [Values.of(input=f"{at.path}/{each.id}", reason=each.reason) for each in reading.left_out]
            case TableInput() | AbsentInput():
                pass
            case UpdateInput(partition=at):
                sync(services.board, services.ledger, at, services.now())
    return tuple(left_out)
