"""Types of settings: texts with a pattern, and lists and objects written in environment variables."""

import json
import re
from itertools import combinations
from posixpath import normpath
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, Secret, SecretStr, model_validator
from pydantic_core import from_json
from pydantic_settings import NoDecode

from feed_assets.core.argument_types import BOARD_NAME
from feed_assets.core.data_centers import ANY, PRIMARY
from feed_assets.core.target_places import check_places
from feed_assets.core.target_types import REMOTE
from feed_assets.core.targets import Target
from feed_assets.core.topics import TOPIC_NAME
from feed_assets.core.warehouses import Warehouse


def _split(value: object) -> object:
    """Parse a list in an environment variable, such as `a, b`."""
    return tuple(word.strip() for word in value.split(",") if word.strip()) if isinstance(value, str) else value


def _each_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return the pairs as a dict. Raise ValueError for a repeated key, because only its last value would count."""
    names = [name for name, _ in pairs]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"the key {repeated[0]!r} is there more than once")
    return dict(pairs)


def _object(value: object) -> object:
    """Parse a JSON object in an environment variable."""
    if not isinstance(value, str):
        return value
    try:
        from_json(value)  # This parser refuses texts that `json` accepts, such as NaN and deep nesting.
        return json.loads(value, object_pairs_hook=_each_once)
    except ValueError as error:
        raise ValueError(f"expected a JSON object: {error}") from None


def _like(pattern: str, expected: str) -> AfterValidator:
    """Return a rule that a text, which may be secret, must match `pattern`."""

    def check(value: str | SecretStr) -> str | SecretStr:
        if not re.fullmatch(pattern, value if isinstance(value, str) else value.get_secret_value(), re.DOTALL):
            raise ValueError(f"expected {expected}")
        return value

    return AfterValidator(check)


Words = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]
Conf = Annotated[Secret[dict[str, str]], NoDecode, BeforeValidator(_object)]
Profiles = Annotated[Secret[dict[str, dict[str, str]]], NoDecode, BeforeValidator(_object)]
Store = Annotated[
    str,
    _like(
        r"file:///[^?#]*|(s3|az|gs)://[^/@?#][^@?#]*|memory://",
        "file:///folder, s3://bucket, az://account/container or gs://bucket, without keys: credentials come from the "
        "environment; ?, # and @ in a path are written %3F, %23 and %40",
    ),
]
Database = Annotated[
    SecretStr,
    _like(
        r"sqlite:///?.*|postgresql(\+\w+)?://[^#]+",
        "sqlite:///file.db or postgresql+psycopg://user:password@host/database, with # written as %23",
    ),
]
Endpoint = Annotated[str, _like("https?://[^/@?#][^@?#]*", "https://host or http://host:port, without keys")]


Queue = Annotated[
    str,
    _like(
        r"https?://[^/@?#\s]+/[^@?#\s]+",
        "the URL of a queue of SQS, such as https://sqs.eu-west-1.amazonaws.com/123456789012/manifests, without keys",
    ),
]


def check_queue(url: str, queue: str | None) -> None:
    """Raise ValueError if a blackboard that is not on S3 has a queue."""
    if queue and not url.startswith("s3:"):
        raise ValueError(f"expected a blackboard on s3://, whose bucket notifies the queue, found {url}")


class BlackboardLocation(BaseModel):
    """Location of a blackboard, and the credentials to reach it.

    On S3, `profile` is a profile of boto3. Without it, boto3's default chain applies. `queue` is the queue that gets
    the notifications of the bucket. If `writable` is true, datasets of this project may be published there. Otherwise
    it belongs to another team, and nothing is ever written there.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: Store
    endpoint: Endpoint | None = None
    profile: str | None = None
    queue: Queue | None = None
    writable: bool = False

    @model_validator(mode="after")
    def _has_bucket(self) -> Self:
        check_queue(self.url, self.queue)
        return self


class DataCenter(BaseModel):
    """A named place that gets copies of datasets, on a blackboard of its own.

    `datasets` are patterns of feeds, such as `ads/*`. `keep` is the number of newest updates that stay there of each
    partition; without it, the place keeps what the source keeps. An alert opens when a copy is later than `deadline`
    seconds. `at_once` is the number of updates, and of all their files, that are copied at the same time. `bandwidth`
    is the most that a process sends, in megabytes a second. `targets` are the compute targets that are there.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: Store
    endpoint: Endpoint | None = None
    profile: str | None = None
    datasets: tuple[str, ...] = Field(min_length=1)
    keep: int | None = Field(default=None, ge=1)
    deadline: float | None = Field(default=None, gt=0)
    at_once: int = Field(default=4, ge=1, le=32)
    bandwidth: float | None = Field(default=None, gt=0)
    targets: tuple[str, ...] = ()

    @property
    def location(self) -> BlackboardLocation:
        """Return the location of its blackboard."""
        return BlackboardLocation(url=self.url, endpoint=self.endpoint, profile=self.profile)


def _check_centers(centers: dict[str, DataCenter]) -> dict[str, DataCenter]:
    """Raise ValueError for a reserved name, and for two data centers with one target or blackboard."""
    if reserved := sorted(centers.keys() & {PRIMARY, ANY}):
        raise ValueError(f"{reserved[0]!r} has a meaning of its own in `at`: expected another name")
    names = [name for each in centers.values() for name in each.targets]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"the target {repeated[0]!r} is there more than once: expected it in one data center")
    folders = [(_folder(each), name) for name, each in centers.items()]
    for one, other in combinations(sorted(folders), 2):
        if other[0].startswith(one[0]):  # Copies of one would be feeds of the other, which `repair` withdraws.
            names = " and ".join(sorted(repr(name) for _, name in (one, other)))
            raise ValueError(
                f"{names} have one url, or one inside the other: expected a blackboard of its own for each"
            )
    return centers


def _folder(center: DataCenter) -> str:
    scheme, _, path = center.url.partition("://")
    return f"{center.endpoint} {scheme}://{normpath(path)}/"


BoardName = Annotated[str, _like(BOARD_NAME, "letters, digits, '_' and '-'")]
Boards = Annotated[Secret[dict[BoardName, BlackboardLocation]], NoDecode, BeforeValidator(_object)]
DataCenters = Annotated[
    Secret[Annotated[dict[BoardName, DataCenter], AfterValidator(_check_centers)]], NoDecode, BeforeValidator(_object)
]
WarehouseName = Annotated[str, _like(BOARD_NAME, "letters, digits, '_' and '-'")]
Warehouses = Annotated[Secret[dict[WarehouseName, Warehouse]], NoDecode, BeforeValidator(_object)]
TargetName = Annotated[str, _like(BOARD_NAME, "letters, digits, '_' and '-'")]
Targets = Annotated[
    Secret[Annotated[dict[TargetName, Target], AfterValidator(check_places)]], NoDecode, BeforeValidator(_object)
]
Registry = Annotated[SecretStr, _like("https?://[^/].*", "https://user:password@host, or http://host:port/path")]
Master = Annotated[str, _like(r"local.*|yarn|(spark|k8s)://.+", "local[2], spark://host:7077, k8s://… or yarn")]
Remote = Annotated[
    SecretStr,
    _like(
        REMOTE,
        "sc://host, sc://host:15002 or sc://host:15002/;token=…, parameters after '/;' only, without a user",
    ),
]
Webhook = Annotated[
    SecretStr,
    _like(
        "(https://[^/].*|http://[^/@][^@]*)?",
        "https://host/path, or http://host/path without user and password, which would be sent unencrypted; "
        "@ in a path of http is written %40",
    ),
]
UiToken = Annotated[
    SecretStr, _like(r"[\w.~-]{32,200}", "32 to 200 letters, digits and -._~, such as `openssl rand -hex 32`")
]
MaskKey = Annotated[
    SecretStr, _like(r"\S{32,1000}", "32 to 1,000 characters without blanks, such as `openssl rand -hex 32`")
]
Smtp = Annotated[SecretStr, _like("(smtps?://[^/].*)?", "smtp://user:password@host:587 or smtps://user:password@host")]


def _times(value: float) -> float:
    if 0 < value <= 1:
        raise ValueError("expected a number greater than 1, or 0 for no alert")
    return value


Times = Annotated[float, AfterValidator(_times)]
LINEAGE = "openlineage+"
"""The prefix of a URL of a lineage sink."""
GLUE = "glue:"
"""The prefix of a sink that is a database of the Glue catalog."""
KAFKA = "kafka:"
"""The prefix of a sink that is a Kafka topic."""

Sink = Annotated[
    SecretStr,
    _like(
        "blackboard:/*(?!_feed_assets(/|$))[^/].*|(sqlite|postgresql).*://[^#]*#[^#]+|"
        rf"{re.escape(LINEAGE)}(https://[^/@][^#?]*|http://[^/@][^@#?]*|file:///[^#?]+)|{GLUE}[a-z0-9_]+|{KAFKA}{TOPIC_NAME}",
        "blackboard:PREFIX, such as blackboard:events, not below _feed_assets, or "
        "postgresql+psycopg://user:password@host/database#table; a comma or # in a password is written %2C or %23; "
        "or openlineage+https://:KEY@host, openlineage+http://host without a key, openlineage+file:///file; "
        "or kafka:TOPIC, or glue:DATABASE",
    ),
]
Sinks = Annotated[tuple[Sink, ...], NoDecode, BeforeValidator(_split)]
