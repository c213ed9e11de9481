"""Declaration of a warehouse: where it is, and when signalled chunks are loaded."""

import re
from typing import Annotated, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator

_DUCKDB, _REDSHIFT, _SNOWFLAKE = "duckdb:///", "redshift://", "snowflake://"

_FORMS = (
    "duckdb:///folder/file.db (an absolute path), postgresql://user:password@host/database, "
    "redshift://user:password@host:5439/database, or snowflake://user:password@account/database/schema?warehouse=NAME"
)

_OPTIONS = frozenset({"warehouse", "role", "host", "port", "protocol"})
"""Options that the URL of Snowflake may have after `?`."""

_SCHEMAS = frozenset({"feed_assets", "feed_assets_deleted", "information_schema"})
"""Schemas that a loader uses. DuckDB names a database after its file, and would confuse such a database with a schema.

So no DuckDB file may have one of these names.
"""


def _url(value: SecretStr) -> SecretStr:
    text = value.get_secret_value()
    if not text.startswith((_DUCKDB, "postgresql://", "postgresql+psycopg://", _REDSHIFT, _SNOWFLAKE)):
        scheme, separator, _ = text.partition("://")
        was = f"found {scheme}://, " if separator and scheme.isalnum() else ""
        raise ValueError(f"{was}expected {_FORMS}")
    if text.startswith(_SNOWFLAKE) and not _is_snowflake(text):
        raise ValueError(
            "expected snowflake://user:password@account/database/schema?warehouse=NAME&role=NAME, where / ? # @ : [ ] "
            "and % of the password are written as %2F and so on"
        )
    if text.startswith(_DUCKDB) and {".", ".."} & {*text.split("/")}:
        raise ValueError("a part of the path is . or ..: expected an absolute path, such as duckdb:///data/main.db")
    file_name = unquote(text).rpartition("/")[2]
    if text.startswith(_DUCKDB) and file_name.partition(".")[0].lower() in _SCHEMAS:
        raise ValueError(
            f"found the file {file_name}, which DuckDB confuses with a schema of its name: expected another name, such "
            "as main.db. Rename it"
        )
    if text.startswith(_REDSHIFT) and not _is_whole(text):
        raise ValueError(
            "expected redshift://user:password@host:5439/database, where / ? # @ : [ ] and % of the password are "
            "written as %2F and so on"
        )
    return value


def _role(value: str) -> str:
    if value and not re.fullmatch(r"arn:aws[a-z-]*:iam::\d{12}:role/\S+", value):
        raise ValueError("expected arn:aws:iam::ACCOUNT:role/NAME, with the 12 digits of the account")
    return value


def _is_whole(url: str) -> bool:
    """Return whether the URL has a user and a valid port: a password with an unescaped `/` would be read as a port."""
    try:
        parts = urlsplit(url)
        return bool(parts.username) and parts.port != 0  # `port` may raise.
    except ValueError:
        return False


def _is_snowflake(url: str) -> bool:
    """Return whether the URL has a user, an account, a database and a schema, and only known options."""
    parts = urlsplit(url)
    names = parts.path.split("/")[1:]
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    is_named = bool(parts.username and parts.hostname) and len(names) == 2 and all(names)
    return is_named and options.keys() <= _OPTIONS and "warehouse" in options


class Warehouse(BaseModel):
    """A database that topics are loaded into.

    Attributes:
        url: `duckdb:///file.db`, `postgresql://user:password@host/database`,
            `redshift://user:password@host:5439/database`, or
            `snowflake://user:password@account/database/schema?warehouse=NAME&role=NAME`.
        iam_role: Only for Redshift: the role with which it reads the chunks, `arn:aws:iam::ACCOUNT:role/NAME`.
        private_key: Only for Snowflake, in place of a password: a private key (PEM), or the path of a file with it.
        chunks: The number limit: at most this many chunks of a topic are loaded at once.
        seconds: The time limit: a chunk is loaded at most this many seconds after its signal, plus the time that loads
            of other tables take.
        deleted_days: How long a deleted key is remembered, so that older messages do not restore it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    url: Annotated[SecretStr, AfterValidator(_url)]
    iam_role: Annotated[str, AfterValidator(_role)] = ""
    private_key: SecretStr | None = None
    chunks: Annotated[int, Field(ge=1)] = 1000
    seconds: Annotated[float, Field(gt=0)] = 60
    deleted_days: Annotated[float, Field(gt=0)] = 7

    @model_validator(mode="after")
    def _check_role(self) -> Self:
        if self.url.get_secret_value().startswith(_REDSHIFT) != bool(self.iam_role):
            problem = (
                "iam_role is set, but the url is not a" if self.iam_role else "iam_role is not set: it is needed for a"
            )
            raise ValueError(
                f"{problem} redshift:// URL. Expected arn:aws:iam::ACCOUNT:role/NAME for Redshift, and only there"
            )
        return self

    @model_validator(mode="after")
    def _check_key(self) -> Self:
        url = self.url.get_secret_value()
        has_password = bool(urlsplit(url).password) if url.startswith(_SNOWFLAKE) else True
        if has_password == (self.private_key is not None):
            raise ValueError("expected a private_key for Snowflake alone, and there either it or a password in the url")
        return self


def table_of(warehouse: str, topic: str) -> str:
    """Return the name that events use for a topic's table in a warehouse."""
    return f"{warehouse}/{topic}"
