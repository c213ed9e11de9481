"""What a warehouse is declared by: where it is, and when what is signalled is loaded."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr


def _url(value: SecretStr) -> SecretStr:
    text = value.get_secret_value()
    if not text.startswith(("duckdb:///", "postgresql://", "postgresql+psycopg://")):
        raise ValueError("expected duckdb:///file.db, or postgresql://user:password@host/database")
    return value


class Warehouse(BaseModel):
    """A database that topics are loaded into.

    Attributes:
        url: `duckdb:///file.db`, or `postgresql://user:password@host/database`.
        chunks: The number limit: so many chunks of a topic are loaded at once, at most.
        seconds: The time limit: a chunk is loaded so many seconds after it was read of, at the latest.
        deleted_days: For so long a key that was deleted is remembered, so that nothing older brings it back.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: Annotated[SecretStr, AfterValidator(_url)]
    chunks: Annotated[int, Field(ge=1)] = 1000
    seconds: Annotated[float, Field(gt=0)] = 60
    deleted_days: Annotated[float, Field(gt=0)] = 7
