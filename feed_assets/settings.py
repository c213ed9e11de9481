"""Typed settings. Nothing else in feed_assets reads the environment."""

import os
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from feed_assets.core.errors import InvalidDefinition


def home() -> Path:
    """The folder for everything that is kept on this machine: `DAGSTER_HOME`, else `./.feed_assets`."""
    return Path(os.environ.get("DAGSTER_HOME") or ".feed_assets").resolve()


class Settings(BaseSettings):
    """All settings, each read from `FEED_ASSETS_<NAME>`."""

    model_config = SettingsConfigDict(env_prefix="FEED_ASSETS_", frozen=True)

    blackboard: str = Field(default_factory=lambda: (home() / "blackboard").as_uri())
    """URL of the store that feeds live on: `file://`, `s3://`, `az://`, `gs://`."""

    ledger: str = Field(default_factory=lambda: f"sqlite:///{home() / 'ledger.db'}")
    """SQLAlchemy URL of the global state store."""

    s3_endpoint: str | None = None
    """Endpoint of an S3-compatible store that is not AWS; credentials come from boto3's chain."""

    spark_master: str = "local[2]"
    """Master of the Spark session, unless `spark_remote` is set."""

    spark_remote: str | None = None
    """Spark Connect URL (`sc://host:port`): the session lives there and is shared by runs."""

    spark_conf: dict[str, str] = {}
    """Further Spark configuration as a JSON object; wins over the defaults."""

    spark_jars: str | None = None
    """A folder of jars for the session, such as those of hadoop-aws for `s3://` blackboards."""

    max_requests: int = Field(default=100, ge=1)
    """Runs that the sensor requests at most in one tick; the rest follow in the next ones."""

    tick_seconds: float = Field(default=20, gt=0)
    """Time that a sensor tick may take, with what Dagster then does of it."""

    max_attempts: int = Field(default=3, ge=1)
    """Runs that are started at most for one partition on the same inputs before a person must look."""

    ads_campaigns: Annotated[tuple[str, ...], NoDecode] = ("men", "women")
    """Campaigns of the ads domain, comma-separated in the environment."""


def expand(url: str) -> str:
    """A URL as it is declared, or of `env:NAME` the variable's value: passwords do not belong into definitions."""
    if not url.startswith("env:"):
        return url
    name = url.removeprefix("env:")
    if name not in os.environ:
        raise InvalidDefinition(f"{url}: the environment has no variable {name}: expected one with the URL. Set it.")
    return os.environ[name]


@cache
def settings() -> Settings:
    """The settings of this process, read once."""
    return Settings()
