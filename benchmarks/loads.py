"""Chunks of a topic merged into a table of a warehouse, against the article's statements alone over the same rows."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from hashlib import sha256
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from benchmarks import Benchmark, Goal, Pair
from feed_assets.core.chunks import key_of
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.kafka import avro, dialect
from feed_assets.kafka.files import FOLDER
from feed_assets.kafka.signals import Signal
from feed_assets.warehouse import state
from feed_assets.warehouse.engines import Engine, engine_of
from feed_assets.warehouse.load import Place, load
from feed_assets.warehouse.runs import Signalled, runs
from feed_assets.warehouse.shapes import shape_of
from feed_assets.warehouse.state import Known
from feed_assets_tests.servers import postgresql_server

NAME, HOLDER, IN_CHUNK = "bench.clicks", "the benchmark", 50_000
SCHEMA = """{"type": "record", "name": "Click", "fields": [
    {"name": "id", "type": "long"}, {"name": "price", "type": ["null", "double"]}, {"name": "page", "type": "string"}
]}"""
PAGE = f"/shop/{'x' * 60}"
COLUMNS = {"_operation": "text", "_offset": "bigint", "id": "bigint", "price": "double precision", "page": "text"}


class _Clicks:
    """Writes chunks of rows, whose offsets go on from call to call.

    The first ones have keys of their own; of later ones three of four are updates, and 5 % deletes.
    """

    def __init__(self, folder: Path, rows: int) -> None:
        self.board = Blackboard.open(folder.as_uri())
        self._folder, self._rows, self._end = folder, rows, 0
        self._dice = Random(1)  # noqa: S311

    def write(self, count: int) -> tuple[list[Signalled], list[Path]]:
        """So many rows: the signals of their chunks, and files of the same lines without names of columns."""
        found = [self._chunk() for _ in range(count // IN_CHUNK)]
        return [signal for signal, _ in found], [file for _, file in found]

    def _chunk(self) -> tuple[Signalled, Path]:
        start, self._end = self._end, self._end + IN_CHUNK
        lines = "".join(map(self._line, range(start, self._end)))
        content = f"{','.join(COLUMNS)}\n{lines}".encode()
        key = f"{FOLDER}/{key_of(NAME, 0, start, is_packed=False)}"
        self.board.put(key, content)
        (bare := self._folder / f"{start}.csv").write_text(lines)
        facts = IN_CHUNK, 0, dialect.NAME, f"{self.board.url}/{key}", len(content), sha256(content).hexdigest(), 1
        return Signalled(Signal(NAME, 0, start, self._end - 1, *facts), self._end), bare

    def _line(self, offset: int) -> str:
        is_later = offset >= self._rows
        operation = "delete" if is_later and offset % 20 == 0 else "update"
        key = self._dice.randrange(self._rows * 4 // 3) if is_later else offset
        return f'"{operation}",{offset},{key},{offset / 7},"{PAGE}"\n'


class _Tables:
    """A table of ours with so many rows, and a bare one with the same."""

    def __init__(self, engine: Engine, clicks: _Clicks, rows: int, merged: int) -> None:
        self._engine, self._clicks, self._merged = engine, clicks, merged
        self._place, self._known = Place(engine, clicks.board, HOLDER, 7), Known()
        self._shape = shape_of(avro.parsed(SCHEMA, {}), ("id",))
        with engine.open() as connection:
            state.prepare(connection)
            state.take(connection, engine, HOLDER, 86_400)
        for _ in range(rows // merged):
            self.write()
            self.ours()
        with engine.open() as connection:
            connection.execute('CREATE TABLE bare AS SELECT * FROM "bench.clicks"')
            if engine.has_keys:
                connection.execute("ALTER TABLE bare ADD PRIMARY KEY (id)")

    def write(self) -> None:
        """The chunks of the next round."""
        self._signals, self._files = self._clicks.write(self._merged)

    def ours(self) -> None:
        """Load them."""
        for run in runs(self._signals):
            self._known = load(self._place, NAME, self._known, run, self._shape)

    def bare(self) -> None:
        """COPY, the highest offset of each key, DELETE, INSERT."""
        columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
        with self._engine.open() as connection:
            run = connection.execute
            run("BEGIN")
            run(f"CREATE TEMP TABLE staged ({columns}, _partition integer)")
            connection.copy("staged", COLUMNS, 0, self._files)
            run("CREATE TEMP TABLE latest AS SELECT DISTINCT ON (id) * FROM staged ORDER BY id, _offset DESC")
            run("DELETE FROM bare t USING latest s WHERE t.id = s.id")
            run("DELETE FROM latest WHERE _operation = 'delete'")
            run("INSERT INTO bare SELECT id, price, page, _partition, _offset FROM latest")
            run("DROP TABLE latest")
            run("DROP TABLE staged")
            run("COMMIT")


@contextmanager
def merged(kind: str, rows: int, count: int) -> Iterator[Pair]:
    """A table has so many rows; each round merges so many others, whose offsets are higher."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        is_file = kind == "duckdb"
        url = f"duckdb://{folder / 'bench.db'}" if is_file else stack.enter_context(postgresql_server()).database()
        tables = _Tables(engine_of(url), _Clicks(folder, rows), rows, count)
        yield Pair(tables.ours, tables.bare, tables.write)


def _benchmark(name: str, kind: str, rows: int, count: int, *, large: bool) -> Benchmark:
    return Benchmark(
        name,
        f"{count:,} rows of chunks merged into {rows:,} of a table ({kind})",
        "COPY and the statements alone",
        Goal(1.15),
        5,
        2,
        partial(merged, kind, rows, count),
        large=large,
    )


BENCHMARKS = [
    _benchmark("loads-duckdb-100k", "duckdb", 1_000_000, 100_000, large=False),
    _benchmark("loads-duckdb", "duckdb", 10_000_000, 1_000_000, large=True),
    _benchmark("loads-postgresql-100k", "postgresql", 1_000_000, 100_000, large=False),
    _benchmark("loads-postgresql", "postgresql", 10_000_000, 1_000_000, large=True),
]
