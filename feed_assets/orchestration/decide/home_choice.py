"""The places where runs may compute now: those that a dataset allows, that are up, and that have the pinned inputs."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property

import sqlalchemy as sa

from feed_assets.core.data_centers import (
    ANY,
    EVERYWHERE,
    PRIMARY,
    CandidatePlace,
    Home,
    choose_home,
    common_home,
    places_at,
)
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.readiness import Verdict
from feed_assets.core.setting_types import DataCenter
from feed_assets.core.windows import address_of
from feed_assets.ledger import due, place_copies, places_down
from feed_assets.ledger.database import Ledger
from feed_assets.ledger.due import DueOutput
from feed_assets.ledger.place_copies import PinnedUpdate
from feed_assets.ledger.resource_queue import LOOK_AGAIN
from feed_assets.orchestration.decide.decisions import decide_needs
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.nodes import Node
from feed_assets.orchestration.decide.output_needs import need_of
from feed_assets.orchestration.declare.declarations import Dataset, EventTable, StateTable
from feed_assets.replication.places import matches
from feed_assets.settings import settings

SOON = timedelta(minutes=5)
"""Time for which a preferred place without a `deadline` is waited for, from the first publication that it lacks."""


@dataclass(frozen=True)
class PlacedInputs:
    """The places that an output may have, in order, and the updates that its run reads there."""

    places: tuple[str, ...]
    pins: frozenset[PinnedUpdate] = frozenset()


def centers() -> Mapping[str, DataCenter]:
    """Return the data centers of the settings."""
    return settings().data_centers.get_secret_value()


def is_chosen(graph: Graph, feeds: Iterable[Feed]) -> bool:
    """Return whether places matter for runs of some datasets. Without data centers all runs are at the primary."""
    return bool(centers()) or any(_is_elsewhere(graph.node(feed)) for feed in {*feeds})


def _is_elsewhere(node: Node) -> bool:
    return isinstance(node.declaration, Dataset) and node.declaration.at != PRIMARY


def places_of(node: Node, output: Partition) -> tuple[str, ...]:
    """Return the places that a dataset allows for a partition, in order. `any` stands for all of them."""
    at = node.declaration.at if isinstance(node.declaration, Dataset) else PRIMARY
    return places_at(at, output.key)


def decided(graph: Graph, ledger: Ledger, outputs: Collection[Partition], now: datetime) -> dict[Partition, Verdict]:
    """Return the present verdict about each output whose dataset is not only at the primary."""
    elsewhere = [each for each in outputs if places_of(graph.node(each.feed), each) != (PRIMARY,)]
    if not elsewhere:
        return {}
    with ledger.read() as connection:
        verdicts = decide_needs(connection, [need_of(graph, each) for each in elsewhere], now)
    return {each.output: each for each in verdicts}


def placed_inputs(
    graph: Graph, outputs: Iterable[Partition], verdicts: Mapping[Partition, Verdict]
) -> dict[Partition, PlacedInputs]:
    """Return for each output its places, and the updates on our own blackboard that its verdict has pinned."""
    return {
        output: PlacedInputs(places_of(graph.node(output.feed), output), _copied(graph, verdicts.get(output)))
        for output in outputs
    }


def _copied(graph: Graph, verdict: Verdict | None) -> frozenset[PinnedUpdate]:
    pins = verdict.pins if verdict else ()
    return frozenset((each.partition, each.update_id) for each in pins if is_copied(graph, each.partition))


def is_copied(graph: Graph, read: Partition) -> bool:
    """Return whether an input is read from a place's blackboard. Tables, and feeds on other blackboards, are not."""
    node = graph.by_feed.get(read.feed)
    is_table = node is None or isinstance(node.declaration, EventTable | StateTable)
    return not is_table and address_of(read) is None and read.feed not in graph.elsewhere


def homes(
    connection: sa.Connection,
    inputs: Mapping[Partition, PlacedInputs],
    now: datetime,
    *,
    is_patient: bool = True,
) -> dict[Partition, Home]:
    """Return where the run of each output may compute now, or what it waits for.

    Unless `is_patient`, no run waits for a preferred place while another one has its inputs.
    """
    view = _View(connection, now, frozenset[PinnedUpdate]().union(*(each.pins for each in inputs.values())))
    return {output: view.home(each, is_patient) for output, each in inputs.items()}


class _View:
    """The places as the ledger has them now, for outputs that read these updates. Each place is read once."""

    def __init__(self, connection: sa.Connection, now: datetime, pins: frozenset[PinnedUpdate]) -> None:
        self._connection, self._now, self._pins = connection, now, pins
        self._health = places_down.health(connection)
        self._published = dict[str, set[PinnedUpdate]]()

    @cached_property
    def _paused(self) -> set[str]:
        return place_copies.paused_places(self._connection)

    def home(self, inputs: PlacedInputs, is_patient: bool) -> Home:
        if inputs.places == (ANY,):
            with_targets = [name for name in sorted(centers()) if settings().targets_of(name)]
            return choose_home([self._place(each, inputs) for each in (PRIMARY, *with_targets)], by_preference=False)
        return choose_home([self._place(each, inputs) for each in inputs.places], by_preference=is_patient)

    def _place(self, name: str, inputs: PlacedInputs) -> CandidatePlace:
        if name != PRIMARY and name not in centers():
            names = ", ".join(sorted(centers())) or "none"
            return CandidatePlace(name, closed=f"FEED_ASSETS_DATA_CENTERS does not have it: it has {names}")
        targets, health = settings().targets_of(name), self._health.get(name)
        has_none = not targets and (name != PRIMARY or bool(settings().targets.get_secret_value()))
        if has_none or (health and health.why):
            return CandidatePlace(name, targets, closed=(health and health.why) or "it has no compute targets")
        missing = inputs.pins - self._copies(name) if name != PRIMARY else frozenset[PinnedUpdate]()
        if never := sorted({str(at.feed) for at, _ in missing if not matches(at.feed, centers()[name].datasets)}):
            return CandidatePlace(
                name, targets, closed=f"{never[0]} is not among its `datasets`, so it is not copied there"
            )
        names = sorted({str(at) for at, _ in missing})
        return CandidatePlace(name, targets, missing=names, is_late=bool(missing) and self._is_late(name, missing))

    def _copies(self, name: str) -> set[PinnedUpdate]:
        if name not in self._published:
            self._published[name] = place_copies.published(self._connection, name, self._pins)
        return self._published[name]

    def _is_late(self, name: str, missing: frozenset[PinnedUpdate]) -> bool:
        """Return whether copies that a place lacks should be there, or do not come because they are paused."""
        deadline, since = centers()[name].deadline, place_copies.behind_since(self._connection, name, missing)
        soon = timedelta(seconds=deadline) if deadline else SOON
        return name in self._paused or since is None or self._now - since > soon


def hold(ledger: Ledger, reasons: Mapping[DueOutput, str], now: datetime) -> None:
    """Let ready outputs wait for a place, each with the reason. They are decided again soon, or when a copy arrives."""
    due.wait_for_input(ledger, reasons, now + LOOK_AGAIN)


def placed(
    graph: Graph,
    ledger: Ledger,
    listed: Mapping[Partition, DueOutput],
    verdicts: Mapping[Partition, Verdict] | None,
    now: datetime,
) -> dict[Partition, PlacedInputs] | None:
    """Return the inputs of the ready outputs that a place can have now. Let the others wait for their place.

    Return None if places do not matter. Without `verdicts`, decide about the outputs again.
    """
    if not listed or not is_chosen(graph, (each.feed for each in listed)):
        return None
    inputs = placed_inputs(graph, listed, decided(graph, ledger, [*listed], now) if verdicts is None else verdicts)
    with ledger.read() as connection:
        chosen = homes(connection, inputs, now)
    hold(ledger, {listed[output]: home.why for output, home in chosen.items() if home.why}, now)
    return {output: each for output, each in inputs.items() if not chosen[output].why}


def home_of_run(
    graph: Graph,
    ledger: Ledger,
    outputs: Collection[Partition],
    named: Mapping[Partition, str],
    now: datetime,
    *,
    is_patient: bool = True,
) -> Home:
    """Return where a run of some outputs may compute now. `named` has updates that it reads in place of the newest."""
    if not outputs or not is_chosen(graph, (each.feed for each in outputs)):
        return EVERYWHERE
    inputs = placed_inputs(graph, outputs, decided(graph, ledger, outputs, now))
    if named:
        inputs = {output: _with_named(graph, each, named) for output, each in inputs.items()}
    with ledger.read() as connection:
        return common_home([*homes(connection, inputs, now, is_patient=is_patient).values()])


def _with_named(graph: Graph, inputs: PlacedInputs, named: Mapping[Partition, str]) -> PlacedInputs:
    if inputs.places == (PRIMARY,):
        return inputs
    kept = {(at, update) for at, update in inputs.pins if at not in named}
    return replace(inputs, pins=frozenset(kept | {each for each in named.items() if is_copied(graph, each[0])}))
