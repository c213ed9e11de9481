"""PostgreSQL, from version 16 on: chunks are sent by COPY FROM STDIN."""

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg

from feed_assets.core.errors import InvalidShape, LoadFailed, WarehouseUnavailable
from feed_assets.core.secrets import shown
from feed_assets.warehouse.engines import Engine, literal, quoted
from feed_assets.warehouse.files import Batch
from feed_assets.warehouse.shapes import PARTITION, Kind, Shape

_LONGEST_NAME = 63
"""Bytes of an identifier: of a longer one PostgreSQL takes no more, whatever follows."""

_LONGEST_KEY = 2600
"""Bytes of a row's key that an index holds for sure."""

_OTHER_BYTES = 16
"""Of those at most, a column of a key that is no text."""

_DIGITS = {"bytes": " / 2"}
"""Two of them are staged for each byte."""

_READ_BYTES = 1 << 20

IDLE_SECONDS = 30
"""After which a transaction that its loader does not go on with is undone: who sleeps in one keeps no other one out."""

_NEVER = (psycopg.errors.ProgramLimitExceeded, psycopg.errors.StatementTooComplex, psycopg.errors.TooManyColumns)
"""What the driver calls operational, and is of this table alone."""

_MAY_BE_OVER = (psycopg.OperationalError, psycopg.errors.IdleInTransactionSessionTimeout)


class PostgreSQL(Engine):
    """A PostgreSQL server."""

    clock, json, has_keys, tells_deleted, most_digits = "clock_timestamp()", "jsonb", True, True, 1000

    own_columns = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"})

    @contextmanager
    def open(self) -> Generator["_Connection"]:
        """A connection until the block ends."""
        url = self._url.replace("postgresql+psycopg:", "postgresql:", 1)
        with translated(url):
            opened = psycopg.connect(
                url,
                autocommit=True,
                prepare_threshold=None,
                connect_timeout=10,
                client_encoding="utf8",
                application_name="feed_assets",
            )
        with opened:
            connection = _Connection(opened, url)
            connection.execute(
                f"SET standard_conforming_strings = on; SET idle_in_transaction_session_timeout = '{IDLE_SECONDS}s'; "
                "SET datestyle = ISO"  # A database or a role may have another one, in which dates are other texts.
            )
            yield connection

    def bytes_of(self, text: str) -> str:
        """By decode."""
        return f"decode({text}, 'hex')"

    def is_wrong(self, text: str, kind: Kind) -> str:
        """As PostgreSQL itself reads it: since version 16 it can be asked."""
        return f"NOT pg_input_is_valid({text}, {literal(self.type_of(kind))})"

    def limits(self, shape: Shape) -> Iterator[tuple[str, str]]:
        """A key that the index cannot hold."""
        texts = [each for each in shape.key_columns if self.staged(each.kind) == "text"]
        if texts:
            others = _OTHER_BYTES * (len(shape.key) - len(texts))
            taken = " + ".join(f"octet_length({quoted(each.name)}){_DIGITS.get(each.kind.name, '')}" for each in texts)
            yield f"{taken} > {_LONGEST_KEY - others}", f"the key has more than {_LONGEST_KEY} bytes"

    def check(self, table: str, shape: Shape, /) -> None:
        """Names that PostgreSQL would cut off are refused, too."""
        super().check(table, shape)
        if table.startswith("pg_"):
            raise InvalidShape(f"{table} is a name of PostgreSQL's own. Give the topic another name.")
        for name in (table, *(each.name for each in shape.columns)):
            if len(name.encode()) > _LONGEST_NAME:
                raise InvalidShape(f"{name} is no name in PostgreSQL: expected at most {_LONGEST_NAME} bytes.")


class _Connection:
    def __init__(self, opened: psycopg.Connection, url: str) -> None:
        self._opened, self._url = opened, url

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        with translated(self._url):
            cursor = self._opened.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def copy(self, table: str, columns: Mapping[str, str], batch: Batch) -> None:
        self.execute(f"ALTER TABLE {table} ALTER COLUMN {PARTITION} SET DEFAULT {batch.partition}")
        names = ", ".join(map(quoted, columns))
        statement = rf"COPY {table} ({names}) FROM STDIN (FORMAT csv, NULL '\N')"
        with translated(self._url), self._opened.cursor().copy(statement.encode()) as copy:
            for each in batch.copies:
                with each.path.open("rb") as file:
                    while data := file.read(_READ_BYTES):
                        copy.write(data)


@contextmanager
def translated(url: str) -> Generator[None]:
    """Raise our errors for those of the driver: what may be over later, and what would fail again."""
    try:
        yield
    except _NEVER as error:
        raise LoadFailed(f"the warehouse cannot hold it: {shown(' '.join(str(error).split()), url)}") from None
    except _MAY_BE_OVER as error:
        said = shown(" ".join(str(error).split()), url)
        raise WarehouseUnavailable(f"the warehouse does not do it: {said}. Check that it answers.") from None
    except psycopg.Error as error:
        raise LoadFailed(f"the warehouse refuses: {shown(' '.join(str(error).split()), url)}") from None
