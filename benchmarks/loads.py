"""Chunks of a topic merged into a table of a warehouse, against the article's bare statements over the same rows."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from hashlib import sha256
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import process_time
from typing import NamedTuple

from benchmarks import Benchmark, Goal, Pair
from feed_assets.core.chunks import key_of
from feed_assets.core.feeds import File
from feed_assets.core.topics import ChunkFormat, Topic
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.kafka import avro
from feed_assets.kafka.chunk_files import FOLDER, dialect_of, stored
from feed_assets.kafka.signal_message import Signal
from feed_assets.warehouse import load_state
from feed_assets.warehouse.engines import Engine
from feed_assets.warehouse.load import LoadContext, load
from feed_assets.warehouse.load_files import ChunkGroup, Copy
from feed_assets.warehouse.load_groups import Signalled, runs
from feed_assets.warehouse.load_state import TopicState
from feed_assets.warehouse.shapes import shape_of
from feed_assets.warehouse.target import engine_of
from feed_assets_tests.support.servers import postgresql_server

NAME, HOLDER, IN_CHUNK = "bench.clicks", "the benchmark", 50_000
SCHEMA = """{"type": "record", "name": "Click", "fields": [
    {"name": "id", "type": "long"}, {"name": "price", "type": ["null", "double"]}, {"name": "page", "type": "string"}
]}"""
PAGE = f"/shop/{'x' * 60}"
COLUMNS = {"_operation": "text", "_offset": "bigint", "id": "bigint", "price": "double precision", "page": "text"}
_LATEST = {
    True: "SELECT DISTINCT ON (id) * FROM staged ORDER BY id, _offset DESC",
    False: "SELECT * FROM staged QUALIFY row_number() OVER (PARTITION BY id ORDER BY _offset DESC) = 1",
}
"""Newest row of each key, by whether the database has keys: in DuckDB, DISTINCT ON takes three times as long."""


class _Chunks(NamedTuple):
    """Signals of chunks, and files of the same lines without column names."""

    signals: list[Signalled]
    files: list[Path]


class _Clicks:
    """Writer of chunks of rows, whose offsets continue from call to call.

    The first chunks have new keys; in later ones three of four rows are updates, and 5 % deletes.
    """

    def __init__(self, folder: Path, rows: int, form: ChunkFormat = "csv") -> None:
        self.board = Blackboard.open(folder.as_uri())
        self._topic = Topic(key=("id",), format=form)
        self._folder, self._rows, self._end = folder, rows, 0
        self._dice = Random(1)  # noqa: S311

    def write(self, count: int) -> _Chunks:
        """Write `count` rows."""
        found = [self._chunk() for _ in range(count // IN_CHUNK)]
        return _Chunks([signal for signal, _ in found], [file for _, file in found])

    def _chunk(self) -> tuple[Signalled, Path]:
        start, self._end = self._end, self._end + IN_CHUNK
        lines = "".join(map(self._line, range(start, self._end)))
        content = stored(f"{','.join(COLUMNS)}\n{lines}".encode(), self._topic, avro.record_of(avro.parsed(SCHEMA, {})))
        key = f"{FOLDER}/{key_of(NAME, 0, start, self._topic.ending)}"
        self.board.put(key, content)
        (bare := self._folder / f"{start}.csv").write_text(lines)
        name = dialect_of(self._topic.ending)
        facts = IN_CHUNK, 0, name, f"{self.board.url}/{key}", len(content), sha256(content).hexdigest(), 1
        return Signalled(Signal(NAME, 0, start, self._end - 1, *facts), self._end), bare

    def _line(self, offset: int) -> str:
        is_later = offset >= self._rows
        operation = "delete" if is_later and offset % 20 == 0 else "update"
        key = self._dice.randrange(self._rows * 4 // 3) if is_later else offset
        return f'"{operation}",{offset},{key},{offset / 7},"{PAGE}"\n'


class _Ours:
    """A table written by the loader, with the first rows loaded."""

    def __init__(self, url: str, clicks: _Clicks, first: _Chunks) -> None:
        self.engine = engine_of(url)
        self._place, self._known = LoadContext(self.engine, clicks.board, HOLDER, 7), TopicState()
        self._shape = shape_of(avro.parsed(SCHEMA, {}), ("id",))
        with self.engine.open() as connection:
            load_state.prepare(connection, self.engine)
            load_state.take(connection, self.engine, HOLDER, 86_400)
        self.load(first)

    def load(self, chunks: _Chunks) -> None:
        """Load chunks as the loader does."""
        self._known = load(self._place, NAME, self._known, [*runs(chunks.signals)], lambda _: self._shape)

    def count(self) -> int:
        """Return the number of rows."""
        return _count(self.engine, self.engine.table(NAME))


class _Bare:
    """A second table in the same database, with the same rows."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        with engine.open() as connection:
            connection.execute('CREATE TABLE bare AS SELECT * FROM "bench.clicks"')
            if engine.has_keys:
                connection.execute("ALTER TABLE bare ADD PRIMARY KEY (id)")

    def load(self, chunks: _Chunks) -> None:
        """Run COPY, keep the highest offset of each key, DELETE, INSERT."""
        columns, names = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items()), tuple(COLUMNS)
        copies = tuple(Copy(0, names, each, File(each.name, 0)) for each in chunks.files)
        with self._engine.open() as connection:
            run = connection.execute
            run("BEGIN")
            run(f"CREATE TEMP TABLE staged ({columns}, _partition integer)")
            connection.copy("staged", COLUMNS, ChunkGroup(0, names, copies, ""))
            run(f"CREATE TEMP TABLE latest AS {_LATEST[self._engine.has_keys]}")
            run("DELETE FROM bare t USING latest s WHERE t.id = s.id")
            run("DELETE FROM latest WHERE _operation = 'delete'")
            run("INSERT INTO bare SELECT id, price, page, _partition, _offset FROM latest")
            run("DROP TABLE latest")
            run("DROP TABLE staged")
            run("COMMIT")

    def count(self) -> int:
        """Return the number of rows."""
        return _count(self._engine, "bare")


class _Dlt:
    """A dlt table with the same rows."""

    def __init__(self, url: str, folder: Path, first: _Chunks) -> None:
        from benchmarks.dlt_peer import Peer  # dlt is in a dependency group of its own.

        self._engine, self._peer = engine_of(url), Peer(url, folder / "dlt")
        self.load(first)

    def load(self, chunks: _Chunks) -> None:
        """Merge the chunks with dlt."""
        self._peer.load(chunks.files)

    def count(self) -> int:
        """Return the number of rows."""
        return _count(self._engine, "peer.clicks")


def _count(engine: Engine, table: str) -> int:
    with engine.open() as connection:
        [[found]] = connection.execute(f"SELECT count(*) FROM {table}")  # noqa: S608
        return found


@contextmanager
def merged(kind: str, rows: int, *, by_dlt: bool) -> Iterator[Pair]:
    """Compare merges into tables of `rows` rows; each round merges a tenth as many, with higher offsets."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        server = stack.enter_context(postgresql_server()) if kind == "postgresql" else None
        one, other = (server.database() if server else f"duckdb://{folder}/{name}.db" for name in ("ours", "theirs"))
        clicks = _Clicks(folder, rows)
        chunks = clicks.write(rows)
        ours = _Ours(one, clicks, chunks)
        theirs = _Dlt(other, folder, chunks) if by_dlt else _Bare(ours.engine)

        def write() -> None:
            nonlocal chunks
            chunks = clicks.write(rows // 10)

        yield Pair(lambda: ours.load(chunks), lambda: theirs.load(chunks), write)
        if (found := ours.count()) != (expected := theirs.count()):
            raise AssertionError(f"{found:,} rows: expected {expected:,}, as the other one has.")


@contextmanager
def in_parquet(kind: str, rows: int) -> Iterator[Pair]:
    """Compare loads of chunks in Parquet with loads of the same rows in CSV, each into a database of its own."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        server = stack.enter_context(postgresql_server()) if kind == "postgresql" else None
        clicks = [_Clicks(_made(folder, form), rows, form) for form in ("parquet", "csv")]
        urls = [server.database() if server else f"duckdb://{folder}/{each}.db" for each in ("ours", "theirs")]
        ours, theirs = (_Ours(url, each, each.write(rows)) for url, each in zip(urls, clicks, strict=True))
        chunks = list[_Chunks]()

        def write() -> None:
            chunks[:] = [each.write(rows // 10) for each in clicks]

        yield Pair(lambda: ours.load(chunks[0]), lambda: theirs.load(chunks[1]), write)
        if (found := ours.count()) != (expected := theirs.count()):
            raise AssertionError(f"{found:,} rows: expected {expected:,}, as the other one has.")


def _made(folder: Path, name: str) -> Path:
    (made := folder / name).mkdir()
    return made


def _benchmark(kind: str, rows: int, *, by_dlt: bool) -> Benchmark:
    is_large, peer = rows > 1_000_000, "-dlt" if by_dlt else ""
    return Benchmark(
        f"loads-{kind}{peer}{'' if is_large else '-100k'}",
        f"{rows // 10:,} rows of chunks merged into {rows:,} of a table ({kind})",
        "dlt doing the same" if by_dlt else "COPY and the statements alone",
        Goal(1 if by_dlt else 1.15),
        5,
        2,
        partial(merged, kind, rows, by_dlt=by_dlt),
        large=is_large,
    )


BENCHMARKS = [
    _benchmark(kind, rows, by_dlt=by_dlt)
    for kind in ("duckdb", "postgresql")
    for by_dlt in (False, True)
    for rows in (1_000_000, 10_000_000)
] + [
    Benchmark(
        f"loads-{kind}-parquet-100k",
        f"CPU: 100,000 rows of chunks in Parquet merged into 1,000,000 of a table ({kind})",
        "the same in CSV",
        Goal(most),
        5,
        2,
        partial(in_parquet, kind, 1_000_000),
        clock=process_time,
    )
    for kind, most in (("duckdb", 1.0), ("postgresql", 2.0))
]
