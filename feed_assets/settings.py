"""Typed settings. Nothing else in feed_assets reads FEED_ASSETS_*."""

import os
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import quote

from pydantic import Field, Secret, SecretStr, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, SettingsConfigDict

from feed_assets import log_lines
from feed_assets.core.completeness import GRAINS, RATIO
from feed_assets.core.data_centers import PRIMARY
from feed_assets.core.errors import InvalidDefinition, InvalidSetting
from feed_assets.core.history import History, Order
from feed_assets.core.secrets import masked
from feed_assets.core.setting_types import (
    BlackboardLocation,
    Boards,
    Conf,
    Database,
    DataCenter,
    DataCenters,
    Endpoint,
    MaskKey,
    Master,
    Profiles,
    Queue,
    Registry,
    Remote,
    Sinks,
    Smtp,
    Store,
    Targets,
    Times,
    UiToken,
    Warehouses,
    Webhook,
    Words,
    check_queue,
)
from feed_assets.core.targets import ComputeTarget
from feed_assets.core.warehouses import Warehouse
from feed_assets.home import home, make_folder, say
from feed_assets.secret_stores import resolved

PREFIX = "FEED_ASSETS_"


def make_board(settings: "Settings") -> None:
    """Make the blackboard if it is the default one."""
    if "blackboard" not in settings.model_fields_set:
        make_folder(home() / "blackboard", "the blackboard")


def _sqlite(path: Path) -> SecretStr:
    """Return the SQLite URL of a file. Characters that have a meaning in URLs are quoted."""
    return SecretStr(f"sqlite:///{quote(str(path))}")


class Declaring(BaseSettings):
    """Settings that are used when datasets are declared.

    They are read again for each dataset. Otherwise importing a module would fix the settings of the program that
    imports it.

    Raises:
        InvalidSetting: A variable has an invalid value; the message names it.
    """

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True, frozen=True)

    partitions_per_run: int = Field(default=20, ge=1)
    """Maximum number of partitions of a dataset that one run builds, if several are ready.

    With 1, each partition has its own run.
    """

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            problems = [_in_words(each) for each in error.errors(include_url=False)]
            raise InvalidSetting("; ".join(problems)) from None


class Settings(Declaring):
    """All settings, each read from the variable `FEED_ASSETS_<NAME>` (docs/reference/settings.md lists them).

    Raises:
        InvalidSetting: A variable has an invalid value; the message names it.
        SecretUnavailable: A variable refers to a secret that AWS does not give.
    """

    blackboard: Store = Field(default_factory=lambda: (home() / "blackboard").as_uri())
    """URL of the store that feeds live on: `file://`, `s3://`, `az://`, `gs://`."""

    ledger: Database = Field(default_factory=lambda: _sqlite(home() / "ledger.db"))
    """SQLAlchemy URL of the ledger, the global state store."""

    s3_endpoint: Endpoint | None = None
    """Endpoint of an S3-compatible store that is not AWS; credentials come from boto3's chain."""

    blackboard_queue: Queue | None = None
    """URL of the SQS queue through which the blackboard's bucket reports what is written there."""

    blackboards: Boards = Secret[dict[str, BlackboardLocation]]({})
    """Further blackboards by name, as a JSON object: of other teams, or `writable` ones of ours.

    For example, `{"partner": {"url": …, "profile": …, "queue": …}, "own": {"url": …, "writable": true}}`.
    """

    data_centers: DataCenters = Secret[dict[str, DataCenter]]({})
    """Places that get copies of datasets, by name, as a JSON object.

    For example, `{"b": {"url": "s3://lake-b", "datasets": ["ads/*"], "keep": 3, "deadline": 3600}}`. `targets`
    names the compute targets that are there.
    """

    spark_master: Master = "local[2]"
    """Master of the Spark session, unless `spark_remote` is set."""

    spark_remote: Remote | None = None
    """Spark Connect URL (`sc://host:port`): the session lives there and is shared by runs."""

    spark_conf: Conf = Secret[dict[str, str]]({})
    """Further Spark configuration as a JSON object. It has priority over the defaults."""

    spark_jars: str | None = None
    """A folder of jars for the session, such as those of hadoop-aws for `s3://` blackboards."""

    max_requests: int = Field(default=100, ge=1)
    """Maximum number of runs that a sensor requests in one tick.

    For late data, it is the maximum number of partitions of each dataset. The rest follow in later ticks.
    """

    history_days: int = Field(default=7, ge=0, le=36_500)
    """Number of days for which a partition is new, from the end of its time window on.

    After that it is history, built last.
    """

    history_order: Order = Order.OLDEST
    """The end of history that is built first, by sensors and by hand: `oldest` or `newest`."""

    history_runs_per_day: int | None = Field(default=None, ge=1)
    """Maximum number of history runs that are requested on a day (UTC), by all sensors and by hand.

    None means no limit.
    """

    history_bytes_per_day: int | None = Field(default=None, ge=1)
    """Maximum number of bytes that the history runs of a day may read. None means no limit."""

    partitions_at_a_time: int = Field(default=1, ge=1)
    """Number of partitions that a run of many partitions builds at the same time, on its one Spark session."""

    run_wait_seconds: float = Field(default=3600, ge=0)
    """Seconds that a run waits, in total, for other runs that build its partitions. After that it fails."""

    tick_seconds: float = Field(default=20, gt=0)
    """Seconds that a sensor tick may take, including the time in which Dagster processes its result."""

    max_attempts: int = Field(default=3, ge=1)
    """Number of runs of a partition that may fail, with the same inputs and code, before a person must act."""

    run_cost: float = Field(default=0, ge=0)
    """Cost of a second of a run, in the unit of `Late(value_per_gb=…)`.

    With 0, re-runs are not weighed by their cost.
    """

    log_days: int = Field(default=90, ge=1, le=36_500)
    """Days for which the ledger keeps changes, events and rejects. Rows that are still needed stay longer."""

    state_grains: Words = GRAINS
    """Sizes of the windows of datasets that nobody has declared, comma-separated in the environment."""

    state_ratio: str = RATIO
    """Share of the source's records that makes a window of an undeclared dataset complete."""

    state_report_days: int = Field(default=30, ge=1)
    """Days for which a window must be complete before its reports are merged into one row.

    After that, the window accepts no more reports.
    """

    slower_factor: Times = Field(default=2, ge=0, le=1_000_000)
    """Factor by which updates of a dataset with `by_events` may take longer with its newest code than before.

    A greater factor opens an alert; 0 means that no alert opens.
    """

    alert_webhook: Webhook | None = None
    """URL to which alerts are posted, signed with `alert_secret`.

    It is secret, because it may contain a service's key.
    """

    alert_secret: SecretStr | None = None
    """Key that signs the alerts posted to the webhook."""

    alert_smtp: Smtp | None = None
    """Mail server for alerts, `smtp://user:password@host:587` or `smtps://…`, with `alert_mail_from` and `_to`."""

    alert_mail_from: str | None = None
    """Sender of alerts by mail."""

    alert_mail_to: Words = ()
    """Receivers of alerts by mail, comma-separated in the environment."""

    alert_apprise: SecretStr | None = None
    """URLs of services to which apprise sends alerts, separated by spaces: `slack://…`, `msteams://…`."""

    events_to: Sinks = ()
    """Sinks of our write events: `blackboard:<prefix>`, SQLAlchemy URLs with `#table`, or `kafka:<topic>`.

    With `openlineage+https://:KEY@host` or `openlineage+file:///file`, the sink gets the inputs and outputs of runs.
    With `glue:DATABASE`, partitions that intake publishes are registered there.
    """

    event_hours_ahead: float = Field(default=24, ge=0)
    """Hours that the marker of another team's event may be ahead of now. An event that is further ahead is rejected."""

    receiver_flush_seconds: float = Field(default=60, gt=0)
    """Seconds after which the receiver publishes what it has accepted."""

    receiver_flush_bytes: int = Field(default=32 << 20, ge=1)
    """Bytes of accepted events after which the receiver publishes before `receiver_flush_seconds` are over."""

    receiver_events_per_second: float = Field(default=10_000, gt=0)
    """Number of events that the receiver accepts of one partner in a second. A burst may have ten times as many."""

    kafka: Conf = Secret[dict[str, str]]({})
    """Configuration of Kafka's clients as a JSON object: `bootstrap.servers`, and settings for authentication."""

    kafka_registry: Registry | None = None
    """URL of the schema registry, with user and password if the registry requires them."""

    mask_key: MaskKey | None = None
    """Secret key of the hashes in masked columns of topics, at least 32 characters. Another key gives other hashes."""

    warehouses: Warehouses = Secret[dict[str, Warehouse]]({})
    """Databases that topics are loaded into, by name, as a JSON object: `{"main": {"url": …, "chunks": …}}`."""

    spark_profiles: Profiles = Secret[dict[str, dict[str, str]]]({})
    """Further Spark configuration by name, for runs with the tag `feed_assets/spark_profile`, as a JSON object."""

    ui_token: UiToken | None = None
    """Token of `feed-assets web`, at least 32 characters that a cookie may have."""

    logs: Literal["text", "json"] = "text"
    """Form of the lines that our services write to stderr: for people, or one JSON object for each line."""

    targets: Targets = Secret[dict[str, ComputeTarget]]({})
    """Places where runs may have their Spark, by name, as a JSON object.

    For example, `{"etl-a": {"kind": "standalone", "master": …, "url": …}}`. Without it, all runs use `spark_master` or
    `spark_remote`, and no run waits for resources.
    """

    ads_campaigns: Words = ("men", "women")
    """Campaigns of the ads domain, comma-separated in the environment."""

    @field_validator("*", mode="before")
    @classmethod
    def _read_reference(cls, value: object, info: ValidationInfo) -> object:
        """Return the secret that the variable of a secret setting refers to.

        Return the value of any other setting unchanged.
        """
        name = str(info.field_name)
        return resolved(_variable(name), value) if isinstance(value, str) and _is_secret(name) else value

    @field_validator("blackboard_queue")
    @classmethod
    def _is_of_a_bucket(cls, queue: str | None, info: ValidationInfo) -> str | None:
        check_queue(info.data.get("blackboard", "s3:"), queue)  # An invalid blackboard has an error of its own.
        return queue

    @model_validator(mode="after")
    def _has_targets_of_data_centers(self) -> Self:
        targets = self.targets.get_secret_value()
        for name, center in self.data_centers.get_secret_value().items():
            if unknown := [each for each in center.targets if each not in targets]:
                raise InvalidSetting(
                    f"FEED_ASSETS_DATA_CENTERS['{name}']['targets'] has {unknown[0]!r}: expected names in "
                    f"FEED_ASSETS_TARGETS, which has {', '.join(sorted(targets)) or 'none'}. Add it there."
                )
        return self

    @property
    def queues(self) -> dict[str, BlackboardLocation]:
        """Return, by name, the blackboards whose store sends a message to a queue after each write.

        Our own blackboard has the name ''.
        """
        places = {"": self.place(None), **self.blackboards.get_secret_value()}
        return {name: each for name, each in places.items() if each.queue}

    @property
    def history(self) -> History:
        """Return the rules for history: what counts as history, its order, and the limits for a day."""
        limits = self.history_runs_per_day, self.history_bytes_per_day
        return History(self.history_days, self.history_order, *limits)

    def place(self, name: str | None) -> BlackboardLocation:
        """Return the location of a blackboard, or of our own if `name` is None.

        Raise InvalidSetting if it is not set.
        """
        if name is None:
            return BlackboardLocation(url=self.blackboard, endpoint=self.s3_endpoint, queue=self.blackboard_queue)
        boards = self.blackboards.get_secret_value()
        if name not in boards:
            names = ", ".join(sorted(boards)) or "none"
            folder = f" A folder is {Path(name).absolute().as_uri()}." if "/" in name else ""
            raise InvalidSetting(
                f"there is no blackboard {name!r}: FEED_ASSETS_BLACKBOARDS has {names}. Add it there.{folder}"
            )
        return boards[name]

    @property
    def own_places(self) -> dict[str | None, BlackboardLocation]:
        """Return the locations of our own blackboards: the default one under None, then the further ones by name."""
        boards = self.blackboards.get_secret_value()
        return {None: self.place(None), **{name: each for name, each in boards.items() if each.writable}}

    def data_center(self, name: str) -> DataCenter:
        """Return a data center by its name. Raise InvalidSetting if it is not set."""
        places = self.data_centers.get_secret_value()
        if name not in places:
            names = ", ".join(sorted(places)) or "none"
            raise InvalidSetting(
                f"there is no data center {name!r}: FEED_ASSETS_DATA_CENTERS has {names}. Correct the name, or add it."
            )
        return places[name]

    def targets_of(self, place: str) -> frozenset[str]:
        """Return the compute targets of a data center. The primary has all targets that belong to none."""
        centers = self.data_centers.get_secret_value()
        if place != PRIMARY:
            return frozenset(self.data_center(place).targets)
        return frozenset(self.targets.get_secret_value()).difference(*(each.targets for each in centers.values()))

    def place_of(self, target: str) -> str:
        """Return the name of the data center that a compute target belongs to, or 'primary'."""
        centers = self.data_centers.get_secret_value()
        return next((name for name, each in centers.items() if target in each.targets), PRIMARY)

    @property
    def mask_key_bytes(self) -> bytes:
        """Return the secret key of hashes in masked columns. It is empty if no key is set."""
        return self.mask_key.get_secret_value().encode() if self.mask_key else b""

    def warehouse(self, name: str) -> Warehouse:
        """Return a warehouse by its name. Raise InvalidSetting if it is not set."""
        warehouses = self.warehouses.get_secret_value()
        if name not in warehouses:
            names = ", ".join(sorted(warehouses)) or "none"
            raise InvalidSetting(f"there is no warehouse {name!r}: FEED_ASSETS_WAREHOUSES has {names}. Add it there.")
        return warehouses[name]

    def target(self, name: str) -> ComputeTarget:
        """Return a compute target by its name. Raise InvalidSetting if it is not set."""
        targets = self.targets.get_secret_value()
        if name not in targets:
            names = ", ".join(sorted(targets)) or "none"
            raise InvalidSetting(f"a run was given the target {name!r}: FEED_ASSETS_TARGETS has {names}. Add it there.")
        return targets[name]

    def profile(self, name: str | None) -> dict[str, str]:
        """Return the Spark configuration of a profile, or {} if `name` is None.

        Raise InvalidSetting if it is not set.
        """
        if name is None:
            return {}
        profiles = self.spark_profiles.get_secret_value()
        if name not in profiles:
            names = ", ".join(sorted(profiles)) or "none"
            raise InvalidSetting(f"a run asks for the Spark profile {name!r}: FEED_ASSETS_SPARK_PROFILES has {names}.")
        return profiles[name]


def expand(url: str) -> str:
    """Return a URL as declared. For `env:NAME`, return the variable's value: passwords do not belong in definitions.

    If the variable refers to a secret of AWS, return the secret. Raise InvalidDefinition if the variable is missing, or
    its value has a raw `#`, which ends a URL; raise SecretUnavailable if AWS does not give the secret.
    """
    if not url.startswith(_BY_VARIABLE):
        return url
    value = resolved(url.removeprefix(_BY_VARIABLE), declared_text(url))
    if "#" in value:
        raise InvalidDefinition(f"{url}: the URL in the variable has a raw '#': expected it written as %23.")
    return value


def declared_text(url: str) -> str:
    """Return a URL as declared. For `env:NAME`, return the variable's text, which may be a reference.

    Raise InvalidDefinition if the variable is missing.
    """
    if not url.startswith(_BY_VARIABLE):
        return url
    name = url.removeprefix(_BY_VARIABLE)
    if name not in os.environ:
        raise InvalidDefinition(f"{url}: the environment has no variable {name}: expected one with the URL. Set it.")
    return os.environ[name]


_BY_VARIABLE = "env:"
"""The prefix of a declared URL that is the name of a variable."""


@cache
def settings() -> Settings:
    """Return the settings of this process, which are read once.

    Write a line to stderr about variables that are not settings.
    """
    config = Settings()
    log_lines.escape_records()
    if config.logs == "json":
        log_lines.as_json(log_lines.service_of(sys.argv))
    _say_unknown(os.environ)
    return config


def others_places() -> set[str]:
    """Return the names of other teams' blackboards. A code location asks when it loads, so nothing is cached."""
    places = Settings().blackboards.get_secret_value() if os.environ.get(_variable("blackboards")) else {}
    return {name for name, each in places.items() if not each.writable}


def has_data_centers() -> bool:
    """Return whether there are data centers. A code location asks when it loads, before its settings are read."""
    return bool(os.environ.get(_variable("data_centers")))


_PLAIN = {
    "bool_parsing": "expected true or false",
    "float_parsing": "expected a number",
    "int_parsing": "expected a whole number",
    "dict_type": "expected a JSON object",
    "model_type": "expected a JSON object with its keys, such as url",
    "tuple_type": "expected a JSON list",
    "missing": "it is missing",
    "extra_forbidden": "there is no such key",
    "union_tag_not_found": "expected the key {discriminator}",
    "union_tag_invalid": "expected the {discriminator} to be one of {expected_tags}",
}
"""Our texts for errors of numbers and of the parts of objects, by pydantic's names."""


def _in_words(error: ErrorDetails) -> str:
    """Return a message that says what a variable contains, and what it may contain.

    The values of secret settings, such as Spark's configuration, are left out. Any other value is left out if it has an
    `@`, because a mistyped URL may contain a password.
    """
    name, *path = error["loc"]
    if name == "targets":  # The second step of the path is the target's kind. The JSON does not have it there.
        path = [*path[:1], *path[2:]]
    held = "" if _is_secret(str(name)) or "@" in str(error["input"]) else f" is {masked(str(error['input']))!r}"
    where = "".join(f"[{step!r}]" for step in path if step != "[key]")
    message = error["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
    words = _PLAIN[error["type"]].format(**error.get("ctx", {})) if error["type"] in _PLAIN else message
    return f"{_variable(str(name))}{where}{held}: {words}"


def _is_secret(name: str) -> bool:
    """Return whether a setting is secret: its type is one of pydantic's types that hide the value."""
    return "Secret" in str(Settings.model_fields[name].annotation)


def _variable(name: str) -> str:
    return f"{PREFIX}{name.upper()}"


_ELSEWHERE = {f"{PREFIX}HOME": ["DAGSTER_HOME"]}
"""Settings that have another name, because they are settings of Dagster."""


def _say_unknown(environment: Mapping[str, str]) -> None:
    variables = [*map(_variable, Settings.model_fields)]
    for name in sorted(each for each in environment if each.startswith(PREFIX) and each not in variables):
        near = [f"is {each} meant?" for each in _ELSEWHERE.get(name, get_close_matches(name, variables, 1, 0.8))]
        hint = near[0] if near else "docs/reference/settings.md has all of them"
        say(f"{name} is not a setting and has no effect: {hint}")
