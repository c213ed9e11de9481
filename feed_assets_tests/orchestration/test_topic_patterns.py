"""Topics that match a pattern, over a real broker: chunks, tables and assets without a line of code."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

import dagster as dg
import pytest
from confluent_kafka import KafkaError
from typer.testing import CliRunner

from feed_assets import kafka_topic, kafka_topics, warehouse_table, with_automation
from feed_assets.cli import app, pattern_topics
from feed_assets.cli.connector import wanted_topics
from feed_assets.cli.kafka_looks import KafkaLooks
from feed_assets.core import topic_patterns
from feed_assets.core.errors import InvalidDefinition, InvalidName, KafkaUnavailable, LedgerUnavailable, NoTopic
from feed_assets.core.topic_patterns import TopicPattern, new_topics
from feed_assets.core.topics import Topic, history_of, signals_of
from feed_assets.kafka import companion_topics, service, topic_watch
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.matched_topics import record, recorded
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.declare.declarations import declaration_of
from feed_assets.orchestration.declare.pattern_tables import patterns_of
from feed_assets.settings import settings
from feed_assets.warehouse import loader
from feed_assets.warehouse.table import Loading
from feed_assets_tests.support.connector_thread import Connector
from feed_assets_tests.support.kafka_topics import FIELDS, QUICK, Place, World
from feed_assets_tests.support.servers import wait_until
from feed_assets_tests.support.warehouse_topics import check, loading_of, nexts

COMMAND = Path(sys.executable).with_name("feed-assets")
SHOP = TopicPattern("shop", r"shop\.(.+)", Topic(key=("id",)), has_key=True)


@pytest.fixture
def world(broker, registry, home, setting, tmp_path, monkeypatch) -> Iterator[World]:
    """Return a topic that does not exist yet, whose name only the pattern of its test matches."""
    monkeypatch.setattr(topic_watch, "LOOK_SECONDS", 0.2)
    monkeypatch.setattr(loader, "NEWER_SECONDS", 0.2)
    setting(
        kafka=json.dumps({"bootstrap.servers": broker.servers, **QUICK}),
        kafka_registry=registry.url,
        warehouses=json.dumps({"main": {"url": f"duckdb://{tmp_path}/main.db"}}),
    )
    with World.of(broker, registry, settings().blackboard) as made:
        yield made


def second(world: World) -> World:
    """Return another topic that the pattern of the test matches."""
    other = World(world.place)
    other.name, other.schemas = f"{world.name}.b", world.schemas
    return other


def specs_of(world: World, **options) -> list[dg.AssetSpec]:
    limits = world.settings.model_dump(include={"messages", "seconds", "operation"})
    pattern = {"pattern": rf"clicks\.({world.name[7:]}.*)"}
    return kafka_topics("shop", warehouses=["main"], **{**pattern, **limits, **options})


def graph_of(world: World, *assets, **options) -> Graph:
    """Load the definitions, as each process does when it starts."""
    return Graph(with_automation(dg.Definitions(assets=[*specs_of(world, **options), *assets])).resolve_asset_graph())


def tables_of(graph: Graph) -> set[str]:
    return {str(feed) for feed in graph.by_feed}


def assets_of(*worlds: World) -> set[str]:
    return {f"{begin}shop/{each.name[7:]}" for each in worlds for begin in ("", "main/")}


def connecting(world: World, graph: Graph, member: str = "one") -> AbstractContextManager[Connector]:
    """Run a connector for a code location as it was loaded, until the block ends."""
    chunking = world.place.chunking(member)
    watch = pattern_topics.watch_of(graph, chunking)
    return Connector(chunking, {}, watch.look if watch else service.no_newer_topics).running()


@contextmanager
def loading(world: World, graph: Graph) -> Iterator[Loading]:
    stopping, target = Event(), loading_of(world.place, settings().warehouse("main").url.get_secret_value())
    newer = lambda: pattern_topics.loaded_now(graph, "main")  # noqa: E731
    thread = Thread(target=loader.run, args=(target, {}, stopping, (0.05, 0.1)), kwargs={"newer": newer})
    thread.start()
    try:
        yield target
    finally:
        stopping.set()
        thread.join(60)
        target.schemas.close()


def in_ledger() -> dict[str, tuple[str, ...]]:
    with open_ledger(settings().ledger).read() as connection:
        return recorded(connection, "shop")


ENDS = ({0: 16}, {1: 5})
"""The offsets behind the last rows of the two topics."""


def test_a_topic_made_after_the_start_becomes_chunks_rows_and_assets(world, capsys):
    """The first topic exists at the start, without a record. The second is made while connector and loader run."""
    world.create()
    world.produce(12)
    begun, later = graph_of(world, key=["id"]), second(world)
    assert tables_of(begun) == set()
    assert "kafka_topics('shop') declares no topic yet" in capsys.readouterr().err
    with loading(world, begun) as target, connecting(world, begun) as running:
        running.wait(world.is_done, "the chunks of the first topic")
        later.create(partitions=2)
        later.produce(5, partition=1)
        running.wait(lambda: later.is_done(2), "the chunks of the topic that is new")
        world.produce(4)
        running.wait(world.is_done, "more chunks of the first topic")
        running.wait(lambda: (nexts(target.engine, world.name), nexts(target.engine, later.name)) == ENDS, "rows")
    world.check()
    later.check(2)
    assert (check(world, target.engine), check(later, target.engine)) == ENDS
    assert tables_of(graph_of(world, key=["id"])) == assets_of(world, later)
    printed = capsys.readouterr().err
    assert f"connector: reads 1 new topics that match shop: {later.name}. Reload the code location" in printed
    assert f"warehouse main: also loads {later.name}" in printed


def test_each_topic_has_the_fields_of_its_key_schema_once_it_has_one(world, capsys):
    world.create()
    other = second(world)
    other.create()
    assert world.key_id
    graph = graph_of(world)
    with connecting(world, graph) as running:
        running.wait(lambda: in_ledger() == {world.name: ("id",)}, "the topic with a key schema")
        running.wait(lambda: f"{other.name}-key" in capsys.readouterr().err, "a line about the other one")
        other.schema_id([FIELDS[1], FIELDS[0]], "key")
        running.wait(lambda: in_ledger() == {world.name: ("id",), other.name: ("n", "id")}, "the other one")
    topics = pattern_topics.loaded_now(graph, "main")
    assert {name: each.key for name, each in topics.items()} == {world.name: ("id",), other.name: ("n", "id")}
    assert tables_of(graph_of(world)) == assets_of(world, other)


def test_connectors_that_share_the_work_begin_a_topic_each_at_its_own_time(world):
    world.create()
    graph, other = graph_of(world, key=["id"]), second(world)
    with connecting(world, graph) as running, connecting(world, graph, "two") as further:
        world.produce(12)
        running.wait(world.is_done, "the first topic")
        other.create(partitions=2)
        for number in (0, 1):
            other.produce(25, partition=number)
        running.wait(lambda: other.is_done(2), "the topic that is new")
        assert further.error is None
    world.check()
    other.check(2)
    assert set(in_ledger()) == {world.name, other.name}


def test_of_two_topics_that_connectors_record_at_once_under_one_name_the_first_is_recorded(world, capsys, monkeypatch):
    """Two records would keep the definitions from loading. The second connector looks while the first prepares."""
    world.create()
    same = World(world.place)
    same.name = world.name.replace(".", "-")
    same.create()
    graph, prepared = graph_of(world, key=["id"], pattern=rf"clicks[.-]({world.name[7:]})"), []
    watches = [pattern_topics.watch_of(graph, world.place.chunking(member)) for member in ("one", "two")]
    prepare = topic_watch.companion_topics.prepare

    def prepare_while_another_looks(admin, name):
        if not prepared:
            prepared.append(name)
            monkeypatch.setattr(watches[1], "_listed", lambda: {world.name, same.name} - {name})
            watches[1].look(0.0)
        return prepare(admin, name)

    monkeypatch.setattr(topic_watch.companion_topics, "prepare", prepare_while_another_looks)
    monkeypatch.setattr(watches[0], "_listed", lambda: {world.name, same.name})
    watches[0].look(0.0)
    (first,) = in_ledger()
    assert {first, *prepared} == {world.name, same.name}, "both were prepared, and one is recorded"
    assert f"is that of {first}" in capsys.readouterr().err
    assert len(tables_of(graph_of(world, key=["id"], pattern=rf"clicks[.-]({world.name[7:]})"))) == 2


def test_a_topic_that_may_not_be_read_or_prepared_stops_no_other(world, capsys, monkeypatch):
    """The first three topics cannot be prepared. A look begins no more after three failures, and the next one does."""
    world.create()
    names = [world.name, *(f"{world.name}.{each}" for each in "abcd")]
    pattern = replace(SHOP, pattern=rf"clicks\.({world.name[7:]}.*)")
    chunking, prepare = world.place.chunking(), companion_topics.prepare

    def prepare_some(admin, name):
        if name in names[1:4]:
            raise KafkaUnavailable(f"cannot prepare the topics of {name}")
        return prepare(admin, world.name)

    monkeypatch.setattr(companion_topics, "prepare", prepare_some)
    watch = topic_watch.TopicWatch(open_ledger(settings().ledger), chunking, [pattern], {}, {})
    monkeypatch.setattr(watch, "_listed", lambda: {*names})
    with closing(chunking.schemas):
        assert set(watch.look(0) or ()) == {names[0]}
        assert set(watch.look(1) or ()) == {names[0], names[4]}
    assert f"does not read 3 topics that match shop: {names[1]} (cannot prepare" in capsys.readouterr().err
    session = service.ConnectorSession(chunking, dict.fromkeys(names[:2], SHOP.rules), Event())
    session._heed(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), names[0])
    assert f"connector: does not read {names[0]}: " in capsys.readouterr().err
    with pytest.raises(KafkaUnavailable):
        service.ConnectorSession(chunking, {"a": SHOP.rules}, Event())._heed(
            KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), "a"
        )


def test_topics_whose_key_schemas_take_long_leave_time_for_reading_and_for_other_topics(world, monkeypatch):
    """Each of the first five takes three seconds, and is refused. A look has five for new topics, and one for them."""
    seconds, looked = [0.0], []

    def key_fields(name):
        looked.append(name[-1])
        seconds[0] += 0 if name[-1] == "z" else 3
        if name[-1] != "z":
            raise InvalidName("its key schema cannot be read")
        return ("id",)

    monkeypatch.setattr(companion_topics, "prepare", lambda *_: None)
    chunking = replace(world.place.chunking(), clock=lambda: seconds[0])
    pattern = replace(SHOP, pattern=r"clicks\.(.)", has_key=False)
    watch = topic_watch.TopicWatch(open_ledger(settings().ledger), chunking, [pattern], {}, {})
    monkeypatch.setattr(watch, "_listed", lambda: {f"clicks.{each}" for each in "abcdez"})
    with closing(chunking.schemas):
        monkeypatch.setattr(chunking.schemas, "key_fields", key_fields)
        found = []
        for _ in range(4):
            found.append(watch.look(seconds[0]))
            assert watch.look(seconds[0]) is None, "the next look is later"
            seconds[0] += topic_watch.LOOK_SECONDS
    assert looked == [*"abcdez", "a"]
    assert [*map(bool, found)] == [False, False, True, False]


def test_a_topic_whose_signals_would_go_into_somebody_elses_topic_is_not_read(world, capsys):
    world.create()
    other = second(world)
    other.name = signals_of(world.name)
    other.create()
    pattern = replace(SHOP, pattern=rf"clicks\.({world.name[7:]})")
    chunking = world.place.chunking()
    watch = topic_watch.TopicWatch(open_ledger(settings().ledger), chunking, [pattern], {}, {})
    with closing(chunking.schemas):
        assert not watch.look(0)
    assert f"{other.name} exists and removes messages by age or size, so it is not ours" in capsys.readouterr().err
    assert int(companion_topics.config_of(world.admin, other.name)["max.message.bytes"].value) < companion_topics.LEAST


LOCATION = """
import dagster as dg
from feed_assets import kafka_topics, with_automation
shop = kafka_topics(
    "shop", pattern={pattern!r}, key=["id"], warehouses=["main"], messages=10, seconds=0.5, operation="header:op"
)
defs = with_automation(dg.Definitions(assets=shop))
"""


def test_the_commands_begin_topics_that_no_record_has_when_they_start(world, tmp_path):
    world.create()
    world.produce(12)
    (tmp_path / "location_of_shop.py").write_text(LOCATION.format(pattern=rf"clicks\.({world.name[7:]})"))
    kafka = {"bootstrap.servers": world.place.servers, "group.id": world.place.group, **QUICK}
    environment = {**os.environ, "FEED_ASSETS_KAFKA": json.dumps(kafka)}
    commands = (["warehouse", "load", "main"], ["connector", "run"])

    def run(arguments: list[str]) -> subprocess.Popen[bytes]:
        command = [COMMAND, *arguments, "-m", "location_of_shop"]
        with (tmp_path / arguments[0]).open("wb") as printed:
            return subprocess.Popen(command, env=environment, cwd=tmp_path, stderr=printed)

    processes = [run(each) for each in commands]
    printed = tmp_path / "warehouse"
    masked = LOCATION.replace('operation="header:op"', 'operation="header:op", mask={{"x?": "null"}}')
    (tmp_path / "location_of_masks.py").write_text(masked.format(pattern="none"))
    try:
        wait_until(
            lambda: f"also loads {world.name}" in printed.read_text() and world.is_done(), "a new table", 120, 0.2
        )
        for each in processes:
            each.send_signal(signal.SIGTERM)
        assert [each.wait(60) for each in processes] == [0, 0], printed.read_text()
    finally:
        for each in processes:
            each.kill()
            each.wait()
    assert "warehouse main: waits for topics that match a pattern" in printed.read_text()
    assert run(["warehouse", "load", "main", "--once"]).wait(60) == 0
    without_key = subprocess.run(
        [COMMAND, "connector", "run", "-m", "location_of_masks"], env=environment, cwd=tmp_path, capture_output=True
    )
    assert without_key.returncode == 1
    assert b"FEED_ASSETS_MASK_KEY is not set" in without_key.stderr
    target = loading_of(world.place, settings().warehouse("main").url.get_secret_value())
    target.schemas.close()
    assert check(world, target.engine) == {0: 12}


STEPS = ("before the record", "before it is read", "when it is read", "before a signal")


def killed_at_step(place: Place, ledger_url: str, pattern: TopicPattern, step: str) -> None:
    """Run a connector, and kill it at a moment between the listing of a new topic and its first signal."""

    def kill(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    subscribe = service.ConnectorSession._subscribe

    def subscribe_then_kill(session: service.ConnectorSession, consumer) -> None:
        subscribe(session, consumer)
        kill()

    if step == STEPS[0]:
        topic_watch.matched_topics.record = kill
    elif step == STEPS[3]:
        service.PartitionReader.take = kill
    else:
        service.ConnectorSession._subscribe = kill if step == STEPS[1] else subscribe_then_kill
    chunking = place.chunking("one")
    watch = topic_watch.TopicWatch(open_ledger(ledger_url), chunking, [pattern], {}, {})
    service.run(chunking, {}, Event(), (0.1, 1), newer=watch.look)


@pytest.mark.parametrize("step", STEPS)
def test_a_connector_killed_while_it_begins_a_topic_loses_and_repeats_nothing(world, fork, step):
    world.create()
    world.produce(12)
    graph = graph_of(world, key=["id"])
    (pattern,) = pattern_topics.patterns_in(graph)
    url = settings().ledger.get_secret_value()
    assert fork.run(killed_at_step, world.place, url, pattern, step) == -signal.SIGKILL
    assert set(in_ledger()) == (set() if step == STEPS[0] else {world.name}), "recorded before it is read"
    assert world.signals() == []
    with connecting(world, graph) as running:
        running.wait(world.is_done, "all chunks")
    world.check()
    assert set(in_ledger()) == {world.name}


def test_definitions_load_and_recorded_topics_are_read_while_the_broker_is_away(world, setting, capsys):
    pattern = replace(SHOP, pattern=rf"clicks\.({world.name[7:]})")
    with open_ledger(settings().ledger).write() as connection:
        record(connection, "shop", {world.name: ()})
    away = replace(world.place, servers="localhost:1")
    setting(kafka=json.dumps({"bootstrap.servers": away.servers}))
    assert tables_of(graph_of(world, key=["id"])) == assets_of(world)
    chunking = away.chunking()
    with closing(chunking.schemas), pytest.MonkeyPatch.context() as patch:
        patch.setattr(topic_watch, "ANSWER_SECONDS", 0.1)
        watch = topic_watch.TopicWatch(open_ledger(settings().ledger), chunking, [pattern], {}, {})
        assert watch.look(0) == {world.name: pattern.rules}
        assert watch.look(0.1) is None, "not due"
        assert watch.look(10) is None, "nothing has changed"
    assert "connector: looks for new topics again in 0.2 s: cannot list the topics" in capsys.readouterr().err


def test_definitions_do_not_load_without_the_ledger_that_has_the_topics(world, setting):
    assert tables_of(graph_of(world, key=["id"])) == set()
    setting(ledger="sqlite:////nowhere/ledger.db")
    assert tables_of(graph_of(world, key=["id"])) == set(), "a ledger that is not made yet"
    setting(ledger="postgresql+psycopg://me@localhost:1/ledger")
    with pytest.raises(LedgerUnavailable, match="cannot be opened at FEED_ASSETS_LEDGER"):
        graph_of(world, key=["id"])


def test_a_deleted_topic_stays_an_asset_until_it_is_forgotten(world, tmp_path, monkeypatch):
    world.create()
    with connecting(world, graph_of(world, key=["id"])) as running:
        running.wait(in_ledger, "the record")
    line = f'kafka_topics("shop", pattern=r"clicks\\.({world.name[7:]})", key=["id"])'
    text = f"import dagster as dg\nfrom feed_assets import kafka_topics\ndefs = dg.Definitions(assets={line})"
    module = f"location_{world.name.replace('.', '_')}"
    (tmp_path / f"{module}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))

    def forget(*arguments: str):
        return CliRunner().invoke(app, ("kafka", "forget", *arguments, "-m", module))

    assert "the broker has the topic" in str(forget(world.name, "--apply").exception)
    assert "no topic 'views' is recorded" in str(forget("views").exception)
    world.delete(world.name)
    assert "--apply removes the record" in forget(world.name).output
    assert tables_of(graph_of(world, key=["id"])) == assets_of(world)
    with pytest.raises(NoTopic, match=r"`feed-assets kafka forget` removes those of a pattern\."):
        KafkaLooks(settings(), module)._topics()
    assert forget(world.name, "--apply").exit_code == 0
    assert tables_of(graph_of(world, key=["id"])) == set()


def test_a_topic_that_kafka_topic_declares_is_not_one_of_the_pattern(world):
    with open_ledger(settings().ledger).write() as connection:
        record(connection, "shop", {world.name: (), f"{world.name}.b": ()})
    own = kafka_topic(f"shop/{world.name[7:]}", topic=world.name, key=["id", "n"], messages=7)
    graph = graph_of(world, own, dg.AssetSpec(["shop", "plain"]), key=["id"])
    assert tables_of(graph) == {f"shop/{world.name[7:]}", *assets_of(second(world))}
    chunking = world.place.chunking()
    with closing(chunking.schemas):
        watch = pattern_topics.watch_of(graph, chunking)
        assert watch
        topics = watch.look(0)
    assert topics
    names = {f"the asset shop/{world.name[7:]}", world.name, "the asset shop", "the asset shop/plain"}
    assert {*watch.owners.values()} == names, "a loaded asset of a pattern does not own its name: it may be forgotten"
    assert {name: each.messages for name, each in topics.items()} == {world.name: 7, f"{world.name}.b": 10}
    assert list(pattern_topics.loaded_now(graph, "main")) == [f"{world.name}.b"]
    kept = graph_of(world, own, key=["id"], histories=["main", "old"])
    history = history_of(f"{world.name}.b")
    assert list(pattern_topics.loaded_now(kept, "main")) == [f"{world.name}.b", history]
    assert pattern_topics.loaded_now(kept, "old")[history].topic == f"{world.name}.b"
    elsewhere = kafka_topic("shop/elsewhere", topic=world.name, key=["id"], messages=8)
    plain = Graph(dg.Definitions(assets=[*specs_of(world, key=["id"]), elsewhere]).resolve_asset_graph())
    assert wanted_topics(plain, [world.name])[world.name].messages == 8, "also without automation"
    table = warehouse_table("main/own", topic=own, warehouse="main")
    assert "main/own" in tables_of(graph_of(world, own, table, key=["id"]))


def test_topics_of_ours_internal_ones_and_names_in_use_do_not_match():
    anything = replace(SHOP, pattern=".+")
    listed = {"a", signals_of("a"), "a-dead-letters", "__consumer_offsets", "traffic-signals"}
    assert new_topics(anything, listed, (), {}) == (["a", "traffic-signals"], {})
    assert new_topics(anything, {signals_of("gone"), "gone"}, (), {"topic_gone": "gone"}) == ([], {})
    names, refused = new_topics(SHOP, {"shop.x-y", "shop.x.y", "xshop.z", "shop.v1.0", "shop.ok"}, (), {})
    assert names == ["shop.ok", "shop.x-y"]
    assert "its name topic_shop_x_y is that of shop.x-y" in refused.pop("shop.x.y")
    assert "shop/v1.0" in refused.pop("shop.v1.0")
    assert refused == {}
    _, refused = new_topics(SHOP, {"shop.ok"}, (), {"shop/ok": "the asset shop/ok"})
    assert refused == {"shop.ok": "its name shop/ok is that of the asset shop/ok"}
    _, refused = new_topics(SHOP, {"shop.a"}, (), {"shop/a-signals": "shop.a-signals"})
    assert refused["shop.a"].startswith("shop.a-signals is read already, and would be the topic of its signals")
    pattern = replace(SHOP, warehouses=("main",), histories=("main",))
    _, refused = new_topics(pattern, {"shop.a", "shop.a_history"}, (), {})
    assert refused == {"shop.a_history": "its name main/shop/a_history is that of shop.a"}
    assert "table shop.a_versions in main is that of" in str(new_topics(pattern, {"shop.a", "shop.a_versions"}, (), {}))
    longest, long = f"shop.{'x' * 187}", f"shop.{'x' * 195}"
    names, refused = new_topics(pattern, {longest, long}, (), {})
    assert names == [longest]
    assert "_history' cannot be a path segment" in refused[long]
    assert [*pattern.topics(dict.fromkeys((longest, long), ("id",)))] == [longest], "a record of before"
    listed = {f"shop.t{number}" for number in range(topic_patterns.MOST_TOPICS + 1)}
    names, refused = new_topics(SHOP, listed, (), {})
    assert (len(names), len(refused)) == (1_000, 1)
    assert new_topics(SHOP, {"shop.ok"}, names, {})[1] == {
        "shop.ok": "the pattern matches more than 1,000 topics: narrow it"
    }


def test_wrong_patterns_are_refused(home):
    for options, words in (
        ({"pattern": "shop.("}, "expected a regular expression"),
        ({"pattern": "(a)(b)"}, "has 2 groups: expected at most one"),
        ({"pattern": "a", "keys": "string", "key": None}, "expected key="),
        ({"pattern": "a", "messages": 0}, "messages is 0"),
        ({"pattern": "a", "values": "json"}, "expected schema="),
    ):
        with pytest.raises(InvalidDefinition, match=words):
            kafka_topics("shop", **{"key": ["id"], **options})
    with pytest.raises(InvalidDefinition, match="prefix without a version"):
        kafka_topics("shop/v1.0", pattern="a")
    for fields, words in (((), "expected one field or more"), (("id", "id"), "expected different names of fields")):
        with pytest.raises(InvalidName, match=words):
            replace(SHOP, has_key=False).topic_with(fields)
    with open_ledger(settings().ledger).write() as connection:
        record(connection, "shop", {"a.x": (), "b.x": ()})
        record(connection, "shop/eu", {"c.y": ()})
    with pytest.raises(InvalidDefinition, match=r"the topics a\.x and b\.x both need the name shop/x"):
        kafka_topics("shop", pattern=r".\.(.+)", key=["id"])
    names = [each.key.to_user_string() for each in kafka_topics("shop", pattern=r".*[bc]\.(.+)", key=["id"])]
    assert names == ["shop", "shop/x"], "not those of a longer prefix"


def test_a_pattern_is_a_line_of_yaml(project, home):
    with open_ledger(settings().ledger).write() as connection:
        record(connection, "shop", {"shop.a": ("k",), "shop.b": ()})
    lines = """
type: feed_assets.TopicsComponent
attributes:
  patterns:
    - {prefix: shop, pattern: 'shop\\.(.+)', seconds: 5, lag: 9, warehouses: [main], histories: [main], newest_by: at,
       mask: {"email?": hash}}
"""
    specs = {each.key.to_user_string(): each for each in project({"topics/defs.yaml": lines}).assets}
    assert set(specs) == {"shop", "shop/a", "main/shop/a", "main/shop/a_history"}
    table = declaration_of(specs["shop/a"])
    assert (table.topic.key, table.topic.seconds, table.lag, table.by_pattern) == (("k",), 5, 9, True)
    assert (table.topic.newest_by, table.topic.mask) == ("at", {"email?": "hash"})
    assert declaration_of(specs["main/shop/a"]).lag == declaration_of(specs["main/shop/a_history"]).lag == 9
    assert [each.rules.mask for each in patterns_of(specs.values())] == [table.topic.mask]
