"""The example of docs/kafka.md, verbatim: DuckDB and Spark read the chunks of a slice."""

import re
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import duckdb
import pytest

from feed_assets.core.events import encode
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.slices import Slice
from feed_assets.kafka import avro, chunk_files
from feed_assets_tests.support.kafka_topics import MORE
from feed_assets_tests.support.topic_projects import chunk, kafka_world

TEXT = (Path(__file__).parents[2] / "docs" / "kafka.md").read_text(encoding="utf-8")
(BODY,) = [text for text in re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL) if "files_of" in text]

pytestmark = pytest.mark.usefixtures("home", "spark")


@pytest.fixture
def topic(broker, registry, setting):
    with kafka_world(broker, registry, setting) as made:
        made.create(partitions=2)
        yield made


@pytest.fixture
def page(topic):
    """Run the page's code for the chunks of this topic."""
    names = {}
    exec(compile(BODY, "<kafka.md>", "exec"), names)  # noqa: S102
    names["CHUNKS"] = Path(urlsplit(topic.board.url).path, chunk_files.FOLDER, topic.name)
    return SimpleNamespace(**{name: names[name] for name in ("files_of", "by_duckdb", "by_spark")})


def piece(start, end, partition=0):
    at = Partition(Feed("ads/clicks"), str(partition))
    return Slice(at, None if start is None else encode(start), encode(end), frozenset())


def in_duckdb(page, slice_):
    with duckdb.connect() as database:
        found = page.by_duckdb(database, slice_)
        names = [each[0] for each in found.description]
        return rows([dict(zip(names, row, strict=True)) for row in found.fetchall()])


def in_spark(page, slice_):
    return rows([row.asDict() for row in page.by_spark(slice_).collect()])


def rows(found):
    return sorted(found, key=lambda row: int(row["_offset"]))


@pytest.mark.parametrize("read", [in_duckdb, in_spark])
def test_a_slice_over_several_schemas_is_read_with_its_deletes(topic, page, read):
    topic.produce(12)
    chunk(topic)
    topic.produce(2, fields=MORE)
    topic.send(None, 3)
    topic.produce(4, partition=1)
    chunk(topic)
    first, last = read(page, piece(None, 12)), read(page, piece(12, 15))
    assert [int(row["_offset"]) for row in first] == [*range(12)], "and no row of what came later"
    assert [row["n"] for row in first] == [str(n) for n in range(12)]
    assert [row["note"] for row in last] == ["é, 12", "é, 13", None]
    assert last[-1] == {"_operation": "delete", "_offset": "14", "id": "k3", "n": None, "note": None}
    both = read(page, piece(None, 15))
    assert [row["note"] for row in both] == [None] * 12 + ["é, 12", "é, 13", None]
    assert [row["n"] for row in read(page, piece(None, 4, partition=1))] == ["14", "15", "16", "17"]


@pytest.mark.parametrize("read", [in_duckdb, in_spark])
def test_a_chunk_file_without_a_signal_adds_no_row(topic, page, read):
    topic.produce(20)
    (signal, _) = chunk(topic)
    lines = topic.unpacked(signal).splitlines(keepends=True)
    topic.board.put(f"{chunk_files.FOLDER}/{topic.name}/0/{5:020}.csv", b"".join([lines[0], *lines[6:]]))
    assert [int(row["_offset"]) for row in read(page, piece(None, 20))] == [*range(20)]


def noted(topic, text):
    schema_id = topic.schema_id(MORE)
    return avro.encoded({"id": "k", "n": 1, "note": text}, topic.schemas.get(schema_id), schema_id)


@pytest.mark.parametrize("read", [in_duckdb, in_spark])
def test_texts_are_read_as_they_were_written(topic, page, read):
    """The only exception is a text of just a backslash and N; the page describes it."""
    texts = ["", 'say "hi", you', "a\nb", "a\r\nb", "\\", '\\"', "007", " both ", "null", None]
    for text in texts:
        topic.send(noted(topic, text))
    chunk(topic)
    assert [row["note"] for row in read(page, piece(None, len(texts)))] == texts


def test_a_text_that_looks_like_null_is_null_only_in_spark(topic, page):
    topic.send(noted(topic, r"\N"))
    chunk(topic)
    assert [row["note"] for row in in_duckdb(page, piece(None, 1))] == [r"\N"]
    assert [row["note"] for row in in_spark(page, piece(None, 1))] == [None]
