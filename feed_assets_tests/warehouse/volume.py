"""One load of a million rows and more: chunks of a topic whose values follow from their offsets."""

import os
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Literal

from feed_assets.core.chunks import key_of
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.kafka import dialect
from feed_assets.kafka.chunk_files import FOLDER
from feed_assets.kafka.messages import OFFSET, OPERATION
from feed_assets.kafka.signal_message import Signal
from feed_assets.warehouse.engines import Engine
from feed_assets.warehouse.load import LoadContext, load
from feed_assets.warehouse.load_groups import LoadGroup, Signalled
from feed_assets.warehouse.load_state import TopicState
from feed_assets.warehouse.shapes import Column, Kind, Shape
from feed_assets.warehouse.target import engine_of
from feed_assets_tests.support.servers import peak_mb
from feed_assets_tests.support.warehouse_connection import opened

HOLDER = "the test"
SCHEMA = 1
COLUMNS: tuple[tuple[str, Literal["bigint", "text"]], ...] = (("id", "bigint"), ("n", "bigint"), ("text", "text"))
SHAPE = Shape(
    columns=tuple(Column(name=name, kind=Kind(name=kind), is_nullable=False) for name, kind in COLUMNS), key=("id",)
)
HEAD = dialect.line([OPERATION, OFFSET, "id", "n", "text"])


def lines(start: int, count: int, keys: int) -> bytes:
    """Yield messages from an offset on: the key is the offset modulo the number of keys."""
    rows = (
        f'"{"delete" if at >= keys and at % 10 == 0 else "update"}",{at},{at % keys},{at * 7},"é, {at:x}"'
        for at in range(start, start + count)
    )
    return HEAD + ("\n".join(rows) + "\n").encode()


def signalled(board: Blackboard, name: str, files: int, rows: int, keys: int) -> list[Signalled]:
    """Write chunks; return their signals."""
    found: list[Signalled] = []
    for number in range(files):
        content, first = lines(number * rows, rows, keys), number * rows
        board.put(key := f"{FOLDER}/{key_of(name, 0, first, '.csv')}", content)
        size, digest = len(content), sha256(content).hexdigest()
        facts = (rows, 0, dialect.NAME, f"{board.url}/{key}", size, digest, SCHEMA)
        found.append(Signalled(Signal(name, 0, first, first + rows - 1, *facts), number + 1))
    return found


def loaded(url: str, board: str, name: str, signals: Sequence[Signalled], peak: Path) -> None:
    """Load all of them at once, and record the peak of memory."""
    engine = engine_of(url)
    load(
        LoadContext(engine, Blackboard.open(board), HOLDER, 7),
        name,
        TopicState(),
        [LoadGroup(SCHEMA, tuple(signals))],
        lambda _: SHAPE,
    )
    peak.write_text(f"{peak_mb(os.getpid())}")


def expected(total: int, keys: int) -> tuple[int, int, int]:
    """Return the result of `differences` once `total` messages are loaded."""
    gone = sum(at % 10 == 0 for at in range(keys, total))
    return min(total, keys) - gone, 0, gone


def differences(engine: Engine, name: str, total: int, keys: int) -> tuple[int, int, int]:
    """Return the numbers of rows, of wrong rows, and of remembered deleted keys."""
    newest = f"CASE WHEN id + {keys} < {total} THEN id + {keys} ELSE id END"
    wrong = (
        f"_offset <> {newest} OR n <> _offset * 7 OR _partition <> 0 OR (_offset >= {keys} AND _offset % 10 = 0)"
        f" OR substr(text, 1, 3) <> 'é, ' OR id NOT BETWEEN 0 AND {keys - 1}"
    )
    with opened(engine) as connection:
        [(rows, distinct, bad)] = connection.execute(
            f'SELECT count(*), count(DISTINCT id), count(*) FILTER (WHERE {wrong}) FROM "{name}"'
        )
        [(deleted,)] = connection.execute(f'SELECT count(*) FROM feed_assets_deleted."{name}"')
    assert rows == distinct, "a key has two rows"
    return rows, bad, deleted
