"""Connections to Snowflake: login, names in upper case, sending of rows, and errors."""

import os
import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit
from uuid import uuid4

from pydantic import SecretStr

from feed_assets.core.errors import InvalidSetting, LoadFailed, WarehouseUnavailable
from feed_assets.core.secrets import masked
from feed_assets.core.sql_text import literal, quoted
from feed_assets.warehouse.chunk_rows import text_rows_of
from feed_assets.warehouse.duck import opened_at
from feed_assets.warehouse.duck import translated as duck_translated
from feed_assets.warehouse.engines import IS_ANOTHERS
from feed_assets.warehouse.load_files import ChunkGroup
from feed_assets.warehouse.shapes import PARTITION

_POOL = "ARROW_DEFAULT_MEMORY_POOL"


def _imported() -> Any:
    """Return the driver. Take back what it sets in the environment: child processes would use more memory for Arrow."""
    was_set = _POOL in os.environ
    imported = import_module("snowflake.connector")
    if not was_set:
        os.environ.pop(_POOL, None)
    return imported


driver = _imported()

LOCK_SECONDS = 60
"""The most seconds for which a statement waits for a lock. Snowflake's default is 12 hours."""

_SESSION = {
    "QUERY_TAG": "feed_assets",
    "TIMEZONE": "UTC",
    "QUOTED_IDENTIFIERS_IGNORE_CASE": False,  # An account may have it on, and names would not be found again.
    "LOCK_TIMEOUT": LOCK_SECONDS,
    "ABORT_DETACHED_QUERY": True,
    "DATE_OUTPUT_FORMAT": "YYYY-MM-DD",
    "TIMESTAMP_TZ_OUTPUT_FORMAT": 'YYYY-MM-DD"T"HH24:MI:SS.FF6TZH:TZM',
    "CLIENT_OUT_OF_BAND_TELEMETRY_ENABLED": False,
}
"""Parameters of each session, which an account or user may have set otherwise."""

STAGE = "feed_assets_files"
"""The temporary stage for the files of a session. It ends with the session."""

_TIMEOUTS = {"login_timeout": 30, "network_timeout": 300}

_FILE_BYTES = 64 << 20
"""Approximate bytes of a file that is sent."""

_MAY_BE_OVER = ("08", "40", "53", "55", "57", "58")
"""Classes of SQLSTATEs of temporary errors: connection, serialization, resources, locks, operators, the system."""

_OF_A_STATEMENT = (driver.ProgrammingError, driver.DataError, driver.IntegrityError, driver.NotSupportedError)

_NOT_FOLDED = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*\"""")


def upper(name: str) -> str:
    """Return a name with the letters a to z in upper case. Snowflake folds no other letters of our own names."""
    return re.sub("[a-z]+", lambda each: each[0].upper(), name)


@contextmanager
def connected(url: str, private_key: SecretStr | None, **overrides: Any) -> Generator[Any]:
    """Yield a connection of the driver until the block ends. Raise WarehouseUnavailable, InvalidSetting."""
    options = {**options_of(url, private_key), **overrides}
    with translated(url):
        opened: Any = driver.connect(**options)
    try:
        yield opened
    finally:
        with suppress(driver.Error):  # The session's end does the same, and only later if the network is away.
            opened.cursor().execute("ROLLBACK")
        with suppress(driver.Error):
            opened.close()


def options_of(url: str, private_key: SecretStr | None) -> Mapping[str, Any]:
    """Return the driver's options for a URL `snowflake://user:password@account/database/schema?warehouse=…&role=…`."""
    parts = urlsplit(url)
    database, _, schema = unquote(parts.path.removeprefix("/")).partition("/")
    login = _key_of(private_key) if private_key else {"password": unquote(parts.password or "")}
    return {
        "account": parts.hostname,
        "user": unquote(parts.username or ""),
        "database": database,
        "schema": schema,
        "autocommit": True,
        "application": "feed_assets",
        "session_parameters": dict(_SESSION),
        **dict(parse_qsl(parts.query)),
        **login,
        **_TIMEOUTS,
    }


def _key_of(private_key: SecretStr) -> Mapping[str, Any]:
    """Return the driver's options for a key, which is a file's path or a PEM."""
    from cryptography.hazmat.primitives import serialization

    text = private_key.get_secret_value()
    try:
        pem = text.encode() if text.lstrip().startswith("-----") else Path(text).read_bytes()
        key = serialization.load_pem_private_key(pem, password=None)
    except (OSError, TypeError, ValueError) as error:
        kind = type(error).__name__  # The text of the error may have a part of the key.
        raise InvalidSetting(
            f"the private_key of the warehouse cannot be read ({kind}): expected the path of a file with a PEM without "
            "a passphrase, or the PEM."
        ) from None
    der = key.private_bytes(serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return {"private_key": der, "authenticator": "SNOWFLAKE_JWT"}


class SnowflakeConnection:
    """A connection whose quoted names are in upper case, so that they are found without quotes, too."""

    def __init__(self, opened: Any, url: str) -> None:
        self._opened, self._url = opened, url

    def execute(self, statement: str, values: Sequence[object] | None = None, /) -> list[tuple[Any, ...]]:
        """Run a statement with its names in upper case. Backslashes are doubled, because a single one is an escape.

        A statement with values was written by a user, so it is not changed.
        """
        if values is None:
            statement = _NOT_FOLDED.sub(_folded, statement)
        with translated(self._url), self._opened.cursor() as cursor:
            cursor.execute(statement, values)
            return [tuple(each) for each in cursor.fetchall()] if cursor.description else []

    def shut(self) -> None:
        """Break the connection, from another thread."""
        with suppress(driver.Error, OSError):
            self._opened.close(retry=False)

    def copy(self, table: str, columns: Mapping[str, str], batch: ChunkGroup) -> None:
        """Send the rows of chunks as Parquet to a stage, and copy them from there. Raise LoadFailed if rows miss."""
        with TemporaryDirectory(dir=batch.copies[0].path.parent) as folder:
            count = _write_parquet(batch, Path(folder) / "rows")
            place = f"@{STAGE}/{uuid4().hex}"
            self.execute(f"PUT {literal(f'file://{folder}/rows/*')} {place} AUTO_COMPRESS = FALSE")
        names = ", ".join([PARTITION, *map(quoted, columns)])
        values = [f"$1:c{number}::{kind}" for number, kind in enumerate(columns.values())]
        rows = f"SELECT {', '.join([str(batch.partition), *values])} FROM {place}"
        copied = self.execute(f"COPY INTO {table} ({names}) FROM ({rows}) FILE_FORMAT = (TYPE = PARQUET) FORCE = TRUE")
        loaded = sum(each[3] for each in copied)
        if loaded != count:
            raise LoadFailed(f"Snowflake has copied {loaded:,} rows: expected the {count:,} that were sent.")


def _write_parquet(batch: ChunkGroup, folder: Path) -> int:
    """Write the rows of chunks as texts c0, c1 and so on into Parquet files. Return the number of rows."""
    with duck_translated(), opened_at(":memory:") as connection:
        connection.execute("SET TimeZone = 'UTC'")
        rows = f"SELECT * FROM {text_rows_of(batch.copies)}"
        form = f"FORMAT parquet, FILE_SIZE_BYTES {_FILE_BYTES}"
        [(count,)] = connection.execute(f"COPY ({rows}) TO {literal(str(folder))} ({form})").fetchall()
    return int(count)


def _folded(token: re.Match[str]) -> str:
    text = token[0]
    return upper(text) if text.startswith('"') else text.replace("\\", "\\\\")


@contextmanager
def translated(url: str) -> Generator[None]:
    """Translate the driver's errors into ours: WarehouseUnavailable if they may be temporary, else LoadFailed."""
    try:
        yield
    except driver.Error as error:
        message = masked(" ".join(str(error.raw_msg or error).split()), url)
        if isinstance(error, _OF_A_STATEMENT) and not str(error.sqlstate or "").startswith(_MAY_BE_OVER):
            advice = f" {IS_ANOTHERS}" if "already exists" in message else ""
            raise LoadFailed(f"Snowflake refuses: {message}{advice}") from None
        raise WarehouseUnavailable(f"Snowflake cannot do it now: {message}. Check that it answers.") from None
