"""Typed settings. Nothing else in feed_assets reads the environment."""

import os
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, SecretStr
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from feed_assets.core.errors import InvalidDefinition, InvalidSetting


def home() -> Path:
    """The folder for everything that is kept on this machine: `DAGSTER_HOME`, else `./.feed_assets`."""
    return Path(os.environ.get("DAGSTER_HOME") or ".feed_assets").resolve()


def _split(value: object) -> object:
    """Read `a, b`, as it stands in the environment."""
    return tuple(word.strip() for word in value.split(",") if word.strip()) if isinstance(value, str) else value


Words = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]


class Settings(BaseSettings):
    """All settings, each read from the variable `FEED_ASSETS_<NAME>` (docs/operations.md has the table).

    Raises:
        ValidationError: A variable cannot be read as its setting's type.
    """

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

    log_days: int = Field(default=90, ge=1)
    """Days for which the ledger keeps its log of changes; the last change of each partition stays."""

    alert_webhook: SecretStr | None = None
    """URL that alerts are posted to, with `alert_secret`; secret because some services have their key in it."""

    alert_secret: SecretStr | None = None
    """Key that signs what is posted to the webhook."""

    alert_smtp: SecretStr | None = None
    """Mail server for alerts, `smtp://user:password@host:587` or `smtps://…`, with `alert_mail_from` and `_to`."""

    alert_mail_from: str | None = None
    """Sender of alerts by mail."""

    alert_mail_to: Words = ()
    """Receivers of alerts by mail, comma-separated in the environment."""

    events_to: Words = ()
    """Sinks that our write events are also published to: `blackboard:<prefix>`, or SQLAlchemy URLs with `#table`."""

    spark_profiles: dict[str, dict[str, str]] = {}
    """Further Spark configuration by name, for runs with the tag `feed_assets/spark_profile`, as a JSON object."""

    ads_campaigns: Words = ("men", "women")
    """Campaigns of the ads domain, comma-separated in the environment."""

    def profile(self, name: str | None) -> dict[str, str]:
        """The Spark configuration of a profile, empty without a name. Raises InvalidSetting for one that is not set."""
        if name is None:
            return {}
        if name not in self.spark_profiles:
            known = ", ".join(sorted(self.spark_profiles)) or "none"
            raise InvalidSetting(f"a run asks for the Spark profile {name!r}: FEED_ASSETS_SPARK_PROFILES has {known}.")
        return self.spark_profiles[name]


def expand(url: str) -> str:
    """A URL as it is declared, or the variable's value for `env:NAME`: passwords do not belong into definitions."""
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
