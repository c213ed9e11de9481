"""Tables of topics with `flatten`: fields of records are columns, through new schemas, deletes, refusals and kills."""

from dataclasses import replace
from random import Random
from uuid import uuid4

import pytest

from feed_assets.core.errors import InvalidShape, NotMigratable
from feed_assets.core.sql_text import quoted
from feed_assets.core.topics import Topic
from feed_assets.warehouse.message_history import with_history
from feed_assets.warehouse.order_column import with_order
from feed_assets_tests.support.fault_seeds import seeds
from feed_assets_tests.warehouse.flat_chunks import Field, FlatStream, Oracle, check_nested, produce_nested
from feed_assets_tests.warehouse.lives import killed_at

KILLED, STATEMENTS = -9, 40
CITY, GEO = Field("city", "string", True), Field("geo", "record", True, (Field("lat", "long", False),))
HOME, AS_TEXT = Field("home", "record", True, (CITY, GEO)), Field("home", "string", True)


def stream_on(board, **options) -> FlatStream:
    return FlatStream(board, f"clicks.{uuid4().hex[:12]}", **options)


@pytest.mark.parametrize("histories", seeds(6, 300))
@pytest.mark.parametrize("conflicts", ["refuse", "variant"])
def test_random_nested_values_make_the_table_of_the_oracle(loader, histories, conflicts):
    refused, columns = 0, set[tuple[str, ...]]()
    loader.place = replace(loader.place, conflicts=conflicts)
    for seed in histories:
        chance = Random(seed)  # noqa: S311
        stream = stream_on(loader.place.board, flatten=1 + seed % 3, conflicts=conflicts, format="both")
        oracle = Oracle(stream)
        for _ in range(6):
            loaded = len(stream.signals)
            produce_nested(stream, chance)
            for signal in stream.signals[loaded:]:
                oracle.load(signal)
                loader.load(stream, signal)
                check_nested(loader, stream, oracle)
        columns |= oracle.columns
        refused += oracle.refused
        rows = f"FROM feed_assets.refused WHERE topic = '{stream.name}'"
        assert loader.ask(f"SELECT count(*) {rows}") == [(oracle.refused,)]
    assert (refused > 0) == (conflicts == "refuse"), "no schema changed a record to another type"
    assert max(map(len, columns)) > 2, "no column is a field of a record in a record"


@pytest.mark.parametrize("kills", seeds(5, 100))
def test_a_load_of_flat_columns_may_be_killed_at_any_statement(loader, url, fork, local_board, kills):
    """The transaction of a load is that of each topic, so one test is enough."""
    loader.place = replace(loader.place, board=local_board, conflicts="variant")
    stream, ends = stream_on(local_board, flatten=2, conflicts="variant"), set()
    oracle = Oracle(stream)
    for seed in kills:
        chance = Random(seed)  # noqa: S311
        before = len(stream.signals)
        stream.send(stream.add((HOME, Field(f"x{seed}", "long", False))), {"id": seed, "home": None, f"x{seed}": 1})
        shapes = {each: stream.shape(each) for each in stream.schemas.known}
        at, is_after = chance.randint(1, STATEMENTS), chance.random() < 0.5
        place = (url, local_board.url, stream.name, stream.signals, shapes, at, is_after)
        ends.add(fork.run(killed_at, *place, False, "variant"))
        loader.load(stream)
        for signal in stream.signals[before:]:
            oracle.load(signal)
        check_nested(loader, stream, oracle)
    assert KILLED in ends <= {KILLED, 0}


def columns(loader, stream) -> list[str]:
    shape = loader.known(stream).shape
    assert shape is not None
    return [f"{each.name} {each.kind}" for each in shape.columns]


@pytest.mark.parametrize("is_record_first", [True, False])
def test_a_record_that_becomes_another_type_stops_the_table_and_the_reverse(loader, is_record_first):
    fields = (HOME, AS_TEXT) if is_record_first else (AS_TEXT, HOME)
    values = ({"city": "K", "geo": None}, "K") if is_record_first else ("K", {"city": "K", "geo": None})
    kinds = ("a record with columns", "text") if is_record_first else ("text", "a record with columns")
    stream = stream_on(loader.place.board)
    schemas = [stream.add([each]) for each in fields]
    stream.send(schemas[0], {"id": 1, "home": values[0]})
    loader.load(stream)
    stream.send(schemas[1], {"id": 2, "home": values[1]})
    before = columns(loader, stream)
    with pytest.raises(NotMigratable, match=f"home was {kinds[0]} and is {kinds[1]}, which would lose data"):
        loader.load(stream)
    assert columns(loader, stream) == before
    loader.place = replace(loader.place, conflicts="variant")
    loader.load(stream)
    question = f"SELECT id, home, home__city FROM {quoted(stream.name)} ORDER BY id"
    cells = {True: (None, "K"), False: ("K", None)}
    assert loader.ask(question) == [(1, *cells[is_record_first]), (2, *cells[not is_record_first])]
    stream.send(stream.add([]), {"id": 3})
    loader.load(stream)
    assert [row[0] for row in loader.ask(question)] == [1, 2, 3], "neither is dropped when the field is gone"


def test_another_flatten_stops_the_table_and_chunks_of_another_one_are_not_loaded(loader):
    stream = stream_on(loader.place.board, flatten=1)
    schema = stream.add([HOME])
    stream.send(schema, {"id": 1, "home": {"city": "K", "geo": {"lat": 1}}})
    loader.load(stream)
    stream.send(schema, {"id": 2, "home": {"city": "K", "geo": {"lat": 2}}})
    stream.topic = stream.topic.model_copy(update={"flatten": 2})
    with pytest.raises(NotMigratable, match="home__geo was json and is a record with columns, which would lose data"):
        loader.load(stream)
    loader.place = replace(loader.place, conflicts="variant")
    with pytest.raises(InvalidShape, match="have no column home__geo__lat: expected one for each field of the schema"):
        loader.load(stream)
    stream.topic = stream.topic.model_copy(update={"flatten": 1})
    loader.load(stream)
    stream.topic = stream.topic.model_copy(update={"flatten": 2})
    stream.send(schema, {"id": 3, "home": {"city": "K", "geo": {"lat": 3}}}, (None, {"id": 1}))
    loader.load(stream)
    question = f"SELECT id, home__geo IS NULL, home__geo__lat FROM {quoted(stream.name)} ORDER BY id"
    assert loader.ask(question) == [(2, False, None), (3, True, 3)]


def test_a_history_keeps_the_columns_of_a_record_that_has_another_type(loader):
    stream = stream_on(loader.place.board)
    of_topic = stream.shape
    stream.shape = lambda schema_id: (shape := of_topic(schema_id)) and with_history(shape)  # type: ignore[method-assign]
    stream.name += "_history"
    first, second = stream.add([HOME]), stream.add([AS_TEXT])
    stream.send(first, {"id": 1, "home": {"city": "K", "geo": None}})
    stream.send(second, {"id": 1, "home": "L"})
    loader.load(stream)
    assert loader.ask(f"SELECT _offset, home__city, home FROM {quoted(stream.name)} ORDER BY 1") == [
        (0, "K", None),
        (1, None, "L"),
    ]


def test_the_newest_row_is_found_by_a_field_of_a_record(loader):
    stream = stream_on(loader.place.board)
    stream.topic = Topic(key=("id",), operation="header:op", flatten=1, newest_by="meta__at")
    of_topic = stream.shape
    stream.shape = lambda schema_id: (shape := of_topic(schema_id)) and with_order(shape, "meta__at")  # type: ignore[method-assign]
    schema = stream.add([Field("meta", "record", True, (Field("at", "long", False),))])
    stream.send(schema, {"id": 1, "meta": {"at": 5}}, {"id": 1, "meta": {"at": 4}}, {"id": 1, "meta": None})
    stream.send(schema, {"id": 1, "meta": {"at": 3}}, partition=1)
    loader.load(stream)
    assert loader.ask(f"SELECT meta__at, _partition, _offset FROM {quoted(stream.name)}") == [(5, 0, 0)]
