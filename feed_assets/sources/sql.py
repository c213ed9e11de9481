"""Event tables in a SQL database."""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property
from hashlib import sha256
from itertools import chain, groupby
from operator import itemgetter
from time import monotonic
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from feed_assets.core.errors import SourceUnavailable
from feed_assets.core.events import Rejected, WriteEvent
from feed_assets.core.limits import READ_BYTES, ROW_BYTES, as_text
from feed_assets.sources.cells import cut, is_short, memory, parsed, with_numbers
from feed_assets.sources.commits import Waiting, await_writers
from feed_assets.sources.contract import EventBatch, Positions, batch_of
from feed_assets.sources.databases import ANSWER_SECONDS, Types, columns_of, reading, rows_alone
from feed_assets.sources.event_rows import Columns

_KINDS: Mapping[str, Callable[[str], Any]] = {
    "int": int,
    "float": float,
    "str": str,
    "Decimal": Decimal,
    "UUID": UUID,
    "date": date.fromisoformat,
    "datetime": datetime.fromisoformat,
}

_RANGES: Mapping[Any, tuple[str, str]] = {
    (sa.DateTime, sa.Date): ("'0001-01-02'", "'9999-12-31'"),
    (sa.Numeric, sa.Float): ("'-Infinity'", "'Infinity'"),
}
"""The exclusive bounds of values in an `order_by` column, by type. NaN sorts above infinity."""

_CURE = "Declare the columns' names, and None for missing facts: columns=Columns(event_marker=None, …)."

ROWS_OF_ONE_VALUE = 50_000
"""The most rows with one `order_by` value. A position has a digest of each, and each read must skip them again."""

ORDER_BYTES = 1024
"""The most bytes of an `order_by` value on PostgreSQL, because a position contains it."""


@dataclass(frozen=True)
class _Place:
    """The last `order_by` value that was read, and a counter of the rows with this value, by their digest.

    The counter is needed, because more rows with this value may arrive later.
    """

    last: Any = None
    read: Counter[str] = field(default_factory=Counter[str])


@dataclass(frozen=True)
class SqlEvents:
    """The events in a table or view at any SQLAlchemy URL. Reading needs only the SELECT privilege.

    `order_by` is a column that grows with each event and is never null: preferably a number that the database draws on
    insert, otherwise a moment. `where` selects a part of the table: it gives, for some columns, the values of the rows
    to read. Several rows may have the same `order_by` value: each is read, also if it arrives after the others. On
    PostgreSQL, transactions may commit in another order than their numbers. So a read waits for earlier writers
    (`waiting`), and no row is skipped.
    """

    url: str = field(repr=False)
    table: str
    columns: Columns = field(default_factory=Columns)
    order_by: str = field(kw_only=True)
    where: Mapping[str, Sequence[str | int]] = field(default_factory=dict[str, Sequence[str | int]], kw_only=True)
    schema: str | None = field(default=None, kw_only=True)
    waiting: Waiting = field(default_factory=Waiting, kw_only=True, repr=False)
    _types: Types = field(default_factory=Types, init=False, repr=False, compare=False)

    def read(self, after: str | None, limit: int, seconds: float = ANSWER_SECONDS, /) -> EventBatch:
        """Return up to `limit` rows after a position, within `seconds`. Raise SourceUnavailable on failure."""
        place, ends = self._load(after), monotonic() + seconds
        with reading(self.url, seconds) as connection:
            if connection.dialect.name == "postgresql":  # In READ COMMITTED, each statement sees the latest commits.
                connection.execution_options(isolation_level="READ COMMITTED")
            self._look_up(connection)
            final, waits = self._final(connection, place)
            if waits:
                return EventBatch((), (), after, is_complete=False, waits=waits)
        with reading(self.url, max(1, ends - monotonic())) as connection:  # Rows are streamed in a transaction.
            new, is_complete = self._new(connection, place, final, limit)
        ordered = [row for row in new if row[self.order_by] is not None]
        if len(new) == limit and not ordered:
            raise self._no_progress(limit)
        self._check_ties(ordered, place)
        rows = [self._read(row) for row in new]
        position = self._dump(_moved(ordered, place, self.order_by), after)
        return batch_of(rows, position, is_complete=is_complete, waits=None)

    def _read(self, row: Mapping[str, Any]) -> WriteEvent | Rejected:
        """Return the event that a row describes. Reject a row with a cell that is too long."""
        if row[self.order_by] is None:
            reason = f"column {self.order_by}, by which events are ordered, has more than {ORDER_BYTES} bytes: expected"
            return Rejected(as_text(row), f"{reason} at most that many.")
        long = next((name for name, value in row.items() if _length(value) > ROW_BYTES), None)
        if long is None:
            return self.columns.read(parsed(row, self._types, self._backend))
        return Rejected(
            as_text(row), f"column {long} has more than {ROW_BYTES} characters: expected at most that many."
        )

    def _new(
        self, connection: sa.Connection, place: _Place, final: sa.ColumnElement[bool], limit: int
    ) -> tuple[list[dict[str, Any]], bool]:
        """Return up to `limit` unread rows, and whether no more exist. Return fewer rows if they reach `READ_BYTES`."""
        size, new = 0, list[dict[str, Any]]()
        with closing(self._rows(connection, place, final, limit + place.read.total() + 1)) as rows:
            first = next(rows, None)
            for row in _unread(chain([first], rows), place, self.order_by) if first else ():
                if len(new) == limit or size > READ_BYTES:
                    return new, False
                new.append(row)
                size += memory(row.values())
        if first is None:
            self._check_reset(connection, place)
        return new, True

    def _final(self, connection: sa.Connection, place: _Place) -> tuple[sa.ColumnElement[bool], str | None]:
        """Return the SQL condition for the rows that can be read now, because no earlier row can appear later.

        Also return a message if a transaction that writes to the table must end first.
        """
        if connection.dialect.name != "postgresql":
            return sa.true(), None
        top = self._top(connection)
        if top is None:
            return sa.false(), None
        waits = None if top == place.last else await_writers(connection, self._from, self.waiting)
        return self._order <= top, waits

    def _rows(
        self, connection: sa.Connection, place: _Place, final: sa.ColumnElement[bool], limit: int
    ) -> Generator[dict[str, Any]]:
        query = self._select().where(final).order_by(self._order).limit(limit)
        if place.last is not None:
            query = query.where(self._order >= place.last)
        with rows_alone(connection, query) as rows:
            yield from (with_numbers(row, self._types, self._backend) for row in rows)

    def _check_reset(self, connection: sa.Connection, place: _Place) -> None:
        """Raise SourceUnavailable if the row that was read last is gone, but other rows exist.

        Their numbers may have begun again at the beginning.
        """
        if place.last is None or (top := self._top(connection)) is None:
            return
        raise SourceUnavailable(
            f"{self._name}: it was read up to {self.order_by} {place.last}, but its highest is {top}. If only its last "
            "rows were removed, do nothing: later rows are read. If its numbers began anew, or it is an "
            "older copy, read it again from the beginning."
        )

    def _no_progress(self, limit: int) -> SourceUnavailable:
        """Return the error of a read in which no row has a position. Each later read would return the same rows."""
        return SourceUnavailable(
            f"{self._name}: {limit:,} rows one after the other have a longer {self.order_by} than {ORDER_BYTES} "
            "bytes: expected at most that many bytes. Remove them, or order by another column, best by a number "
            "that the database draws on insert."
        )

    def _check_ties(self, rows: Sequence[Mapping[str, Any]], place: _Place) -> None:
        """Raise SourceUnavailable if more rows than ROWS_OF_ONE_VALUE have one value. `rows` are sorted by value."""
        for value, tied in groupby(rows, key=itemgetter(self.order_by)):
            if sum(1 for _ in tied) + (place.read.total() if value == place.last else 0) > ROWS_OF_ONE_VALUE:
                raise SourceUnavailable(
                    f"{self._name}: more than {ROWS_OF_ONE_VALUE:,} rows have {self.order_by} {str(value)!r:.60}: "
                    "expected at most that many with one value. Order by a column that differs from row to row, best "
                    "by a number that the database draws on insert."
                )

    def _top(self, connection: sa.Connection) -> Any:
        query = self._of_part(self._order).where(self._is_position()).order_by(self._order.desc())
        return connection.execute(query.limit(1)).scalar()

    def _select(self) -> "sa.Select[*tuple[Any, ...]]":
        """Return the query for the events of this part of the table. Long values are cut in the database.

        On PostgreSQL, a long `order_by` value becomes null instead of a cut text, because a cut text may sort
        differently.
        """
        ordered_by = self.order_by if self._backend == "postgresql" else None
        position = sa.case((self._is_position(), self._order)).label(self.order_by)
        cells = [
            position if each.name == ordered_by else cut(each, self._types[each.name], self._backend)
            for each in self._from.c
        ]
        return self._of_part(*cells)

    def _is_position(self) -> sa.ColumnElement[bool]:
        """Return the SQL condition that an `order_by` value is short enough for a position."""
        if self._backend != "postgresql" or is_short(self._types[self.order_by]):
            return sa.true()
        return sa.func.octet_length(sa.cast(self._order, sa.Text)) <= ORDER_BYTES

    def _of_part(self, *cells: sa.ColumnElement[Any]) -> "sa.Select[*tuple[Any, ...]]":
        query = sa.select(*cells).select_from(self._from).where(self._order.is_not(None), *self._in_range())
        return query.where(*(sa.column(name).in_(values) for name, values in self.where.items()))

    def _look_up(self, connection: sa.Connection) -> None:
        """Look up the columns to read, with their types. SQLite would read the name of a missing column as a text."""
        if self._types:
            return
        needed = tuple(dict.fromkeys((*self.columns.named, self.order_by)))
        column_types = columns_of(connection, self.table, self.schema, (*needed, *self.where), _CURE)
        self._types.update(
            column_types if self.columns.others_in_context else {name: column_types[name] for name in needed}
        )

    def _in_range(self) -> list[sa.ColumnElement[bool]]:
        """Return conditions, on PostgreSQL, that exclude extreme `order_by` values such as infinity.

        No new row could sort after such a value.
        """
        kind = self._types[self.order_by]
        bounds = next((bounds for kinds, bounds in _RANGES.items() if isinstance(kind, kinds)), None)
        if bounds is None or self._backend != "postgresql":
            return []
        return [self._order > sa.literal_column(bounds[0]), self._order < sa.literal_column(bounds[1])]

    @cached_property
    def _from(self) -> sa.TableClause:
        return sa.table(self.table, *map(sa.column, self._types), schema=self.schema)

    @property
    def _backend(self) -> str:
        return sa.make_url(self.url).get_backend_name()

    @property
    def _name(self) -> str:
        return f"{self.schema}.{self.table}" if self.schema else self.table

    @property
    def _order(self) -> sa.ColumnElement[Any]:
        return self._from.c[self.order_by]  # In ORDER BY, the bare name would mean the cut value.

    @property
    def _positions(self) -> Positions:
        parts = sorted((name, sorted(map(repr, values))) for name, values in self.where.items())
        return Positions(self._name, self.columns, self.order_by, parts)

    def _load(self, position: str | None) -> _Place:
        place = self._positions.load(position)
        return _Place(_KINDS[place["kind"]](place["last"]), Counter(place["read"])) if place else _Place()

    def _dump(self, place: _Place, before: str | None) -> str | None:
        if place.last is None:
            return before
        kind = type(place.last).__name__
        if kind not in _KINDS:
            raise SourceUnavailable(f"{self._name}: {self.order_by} is a {kind}: expected one of {', '.join(_KINDS)}.")
        return self._positions.dump({"kind": kind, "last": str(place.last), "read": place.read})


def _length(value: Any) -> int:
    return len(value) if isinstance(value, str | bytes) else 0


def _digest(row: Mapping[str, Any]) -> str:
    return sha256(as_text(row).encode()).hexdigest()[:16]


def _unread(rows: Iterable[dict[str, Any]], place: _Place, order_by: str) -> Iterator[dict[str, Any]]:
    """Yield the rows that were not read before.

    Rows with the last value of `order_by` may have been read already. Skip such a row as often as it was read.
    """
    remaining = place.read.copy()
    for row in rows:
        if row[order_by] == place.last and remaining[_digest(row)] > 0:
            remaining[_digest(row)] -= 1
        else:
            yield row


def _moved(rows: Sequence[dict[str, Any]], place: _Place, order_by: str) -> _Place:
    if not rows:
        return place
    last = rows[-1][order_by]
    at_last = Counter(_digest(row) for row in rows if row[order_by] == last)
    return _Place(last, at_last + place.read if last == place.last else at_last)
