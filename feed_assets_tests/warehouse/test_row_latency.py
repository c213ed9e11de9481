"""A signal, or an update of a dataset, becomes rows in as few rounds of the loader as the limits allow."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from confluent_kafka import Consumer

from feed_assets.feeds.blackboard import Blackboard
from feed_assets.kafka.catch_up import catch_up
from feed_assets.kafka.clients import Clients
from feed_assets.warehouse import dataset as datasets
from feed_assets.warehouse import loader
from feed_assets.warehouse.engines import Engine
from feed_assets.warehouse.table import Loading
from feed_assets_tests.support.kafka_topics import World
from feed_assets_tests.support.stepped_clients import CalledClients, PolledConsumer, StepClock
from feed_assets_tests.support.warehouse_datasets import Dataset, state_rows
from feed_assets_tests.support.warehouse_topics import loading_of, nexts

WAIT = 0.5
"""Seconds between rounds for which docs/performance.md was measured: more adds latency to every table."""


Turn = Callable[[], object]


class Rounds(Event):
    """Stop event of a loader, which waits for it after each round: then the next of `turns` is executed."""

    def __init__(self, *turns: Turn | None) -> None:
        super().__init__()
        self.clock, self._turns = StepClock(), iter(turns)

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout == WAIT
        self.clock.wait(timeout)
        try:
            turn = next(self._turns)
        except StopIteration:
            self.set()
            return True
        if turn is not None:
            turn()
        return False

    def run(self, loading: Any, wanted: loader.TableSources) -> None:
        loader.run(loading, wanted, self, clock=self.clock)


class SignalledTopic:
    """A topic of a world, and the offset up to which its table is loaded."""

    def __init__(self, world: World, engine: Engine) -> None:
        self._world, self._engine = world, engine

    @property
    def wanted(self) -> loader.TableSources:
        return {self._world.name: self._world.settings}

    @property
    def loaded(self) -> int:
        return nexts(self._engine, self._world.name).get(0, 0)

    def signal(self, messages: int = 1) -> None:
        """Produce messages, and signal them; readers see the signals on return."""
        self._world.produce(messages)
        chunking = self._world.place.chunking()
        with closing(chunking.schemas):
            self._world.committed(catch_up(chunking, self._world.name, self._world.settings))


@pytest.fixture
def world(broker, registry, local_board: Blackboard) -> Iterator[World]:
    with World.of(broker, registry, local_board.url) as made:
        made.create()
        yield made


@pytest.fixture
def loading(world: World, tmp_path: Path) -> Iterator[Loading]:
    made = loading_of(world.place, f"duckdb://{tmp_path / 'warehouse.db'}", seconds=3600)
    with closing(made.schemas):
        yield made


def limited(loading: Loading, **limits: float) -> Loading:
    return replace(loading, warehouse=loading.warehouse.model_copy(update=limits))


def watch(topic: SignalledTopic, offsets: list[int], *turns: Turn | None) -> list[Turn]:
    """Return turns that note first up to where the table is loaded."""

    def noting(turn: Turn | None) -> Turn:
        return lambda: (offsets.append(topic.loaded), turn and turn())

    return [*map(noting, turns)]


def test_signals_that_are_there_are_loaded_before_the_first_wait(world, loading):
    topic, offsets = SignalledTopic(world, loading.engine), list[int]()
    topic.signal()
    Rounds(*watch(topic, offsets, None)).run(limited(loading, chunks=1), topic.wanted)
    assert offsets == [1]


def test_a_signal_that_reaches_the_limit_is_loaded_in_the_next_round(world, loading):
    topic, offsets = SignalledTopic(world, loading.engine), list[int]()
    turns = watch(topic, offsets, None, topic.signal, topic.signal, None, topic.signal, None, None)
    Rounds(*turns).run(limited(loading, chunks=1), topic.wanted)
    assert offsets == [0, 0, 1, 2, 2, 3, 3]


def test_a_signal_is_loaded_in_the_round_in_which_its_time_is_over(world, loading):
    """Load it on time: later signals do not delay it, and those read in that round are loaded, too."""
    topic, offsets = SignalledTopic(world, loading.engine), list[int]()
    turns = watch(topic, offsets, topic.signal, topic.signal, topic.signal, topic.signal, topic.signal, None, None)
    Rounds(*turns).run(limited(loading, seconds=4 * WAIT), topic.wanted)
    assert offsets == [0, 0, 0, 0, 0, 5, 5], "read in the second round, so due four rounds later"


def test_a_backlog_of_signals_is_loaded_without_a_wait(world, loading):
    world.settings = world.settings.model_copy(update={"messages": 1})
    topic, offsets = SignalledTopic(world, loading.engine), list[int]()
    topic.signal(7)
    Rounds(*watch(topic, offsets, None)).run(limited(loading, chunks=2), topic.wanted)
    assert offsets == [6], "three loads of two before the first wait; the seventh signal waits for its time"


class PolledReaders(CalledClients):
    """Clients whose readers note each poll, which lasts until the broker answers."""

    def __init__(self, clients: Clients, polls: list[str]) -> None:
        super().__init__(clients, lambda *_: None)
        self._polls = polls

    def page_reader(self) -> PolledConsumer:
        return PolledConsumer(self._clients.page_reader(), self._poll)

    def _poll(self, consumer: Consumer, _: float) -> Any:
        received = consumer.poll(30)
        self._polls.append("nothing" if received is None else "end" if received.error() else "signal")
        return received


def test_a_round_reads_signals_to_their_end_without_an_extra_poll(world, loading):
    topic, polls = SignalledTopic(world, loading.engine), list[str]()
    topic.signal()
    polled: Any = PolledReaders(loading.clients, polls)
    Rounds(lambda: polls.append("wait"), topic.signal, None).run(replace(loading, clients=polled), topic.wanted)
    assert polls == ["signal", "end", "wait", "end", "signal", "end", "end"]


@pytest.mark.parametrize("url", ["duckdb"], indirect=True)
def test_an_update_is_loaded_in_the_next_round(target, dataset: Dataset):
    """Ignore `seconds` and `chunks`, which do not apply to datasets: no load waits."""
    keys = list[set[str]]()

    def publish(key: str) -> None:
        note()
        dataset.publish(key, {"n": 1})

    def note() -> None:
        keys.append({*state_rows(target.engine, dataset)})

    dataset.publish("0", {"n": 1})
    turns = lambda: publish("1"), lambda: publish("2"), note, note
    Rounds(*turns).run(target, {dataset.name: dataset.published})
    assert keys == [{"0"}, {"0", "1"}, {"0", "1", "2"}, {"0", "1", "2"}]


@pytest.mark.parametrize("url", ["duckdb"], indirect=True)
def test_a_backlog_of_updates_is_loaded_without_a_wait(target, dataset: Dataset, monkeypatch):
    monkeypatch.setattr(datasets, "CHANGES", 2)
    counts = list[int]()
    for key in "12345":
        dataset.publish(key, {"n": 1})
    Rounds(lambda: counts.append(len(state_rows(target.engine, dataset)))).run(
        target, {dataset.name: dataset.published}
    )
    assert counts == [5]


def test_changes_of_several_tables_are_loaded_in_one_round(world, loading, dataset: Dataset):
    topic, loaded = SignalledTopic(world, loading.engine), list[tuple[int, int]]()

    def note() -> None:
        loaded.append((topic.loaded, len(state_rows(loading.engine, dataset))))

    def come() -> None:
        note()
        topic.signal()
        dataset.publish(f"{len(loaded)}", {"n": 1})

    for wanted in (topic.wanted | {dataset.name: dataset.published}, {dataset.name: dataset.published} | topic.wanted):
        Rounds(come, note).run(limited(loading, chunks=1), wanted)
    assert loaded == [(0, 0), (1, 1), (1, 1), (2, 2)]
