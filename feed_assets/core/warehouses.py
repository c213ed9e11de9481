"""What a warehouse is declared by: where it is, and when what is signalled is loaded."""

from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator

_REDSHIFT = "redshift://"


def _url(value: SecretStr) -> SecretStr:
    text = value.get_secret_value()
    if not text.startswith(("duckdb:///", "postgresql://", "postgresql+psycopg://", _REDSHIFT)):
        raise ValueError(
            "expected duckdb:///file.db, postgresql://user:password@host/database, "
            "or redshift://user:password@host:5439/database"
        )
    return value


class Warehouse(BaseModel):
    """A database that topics are loaded into.

    Attributes:
        url: `duckdb:///file.db`, `postgresql://user:password@host/database`, or
            `redshift://user:password@host:5439/database`.
        iam_role: The role by which Redshift reads the chunks, for Redshift alone: `arn:aws:iam::ACCOUNT:role/NAME`.
        chunks: The number limit: so many chunks of a topic are loaded at once, at most.
        seconds: The time limit: a chunk is loaded so many seconds after it was read of, at the latest.
        deleted_days: For so long a key that was deleted is remembered, so that nothing older brings it back.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: Annotated[SecretStr, AfterValidator(_url)]
    iam_role: str = ""
    chunks: Annotated[int, Field(ge=1)] = 1000
    seconds: Annotated[float, Field(gt=0)] = 60
    deleted_days: Annotated[float, Field(gt=0)] = 7

    @model_validator(mode="after")
    def _check_role(self) -> Self:
        if self.url.get_secret_value().startswith(_REDSHIFT) != bool(self.iam_role):
            raise ValueError(
                "iam_role is for redshift:// alone, which needs it: expected arn:aws:iam::ACCOUNT:role/NAME"
            )
        return self
