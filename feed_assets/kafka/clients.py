"""Kafka clients with the configuration of the settings, and the translation of their errors into ours."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from feed_assets.core.errors import FeedAssetsError, FencedOff, InvalidSetting, KafkaUnavailable
from feed_assets.core.secrets import masked
from feed_assets.home import say

SECONDS = 30.0
"""Seconds for a broker to answer before it counts as unavailable."""

GROUP = "feed_assets"
_QUEUED_KB = 16 << 10
"""Kilobytes that a consumer reads ahead for all its partitions together, however long the backlog."""

_FETCHED = 8 << 20
_FETCHED_OF_PARTITION = 16 << 10
"""The most compressed bytes of one partition in an answer. The broker sends at least one batch, however large it is.

The limit is small, because a client unpacks all batches of an answer at once, and each may unpack to any size.
"""

_PAGE_KB = 1 << 10
LONGEST = 64 << 20
"""The most bytes of a message that is read or written."""

_ABOUT = {
    "_RESOLVE": "bootstrap.servers, and the listeners that the broker advertises",
    "_TRANSPORT": "bootstrap.servers and security.protocol",
    "_SSL": "security.protocol and ssl.*",
    "_AUTHENTICATION": "security.protocol, sasl.mechanism, sasl.username and sasl.password",
}
"""Properties to check when a client cannot reach the broker, by the error that the client gets."""

_SILENT_CODES = frozenset({"_TRANSPORT", "_TIMED_OUT", "_ALL_BROKERS_DOWN"})
"""Errors of a call that got no answer. The client learns the reason in the background, and reports it when polled."""

_background_errors = list[KafkaError]()
"""The first background error in `_ABOUT` since this list was cleared."""

SAY_SECONDS = 60.0
"""Seconds between two log lines about one kind of background error."""

_last_logged = dict[str, float]()
"""The time of the last log line about each kind of background error."""

_FENCED_CODES = frozenset({"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "FENCED_INSTANCE_ID"})

_CONTENT_CODES = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_RECORD,
    }
)
"""Errors for messages that the broker will never take. A retry would not help."""


class Clients:
    """Factory of clients with one configuration. `on_error` receives background errors."""

    def __init__(self, conf: Mapping[str, str], on_error: Callable[[KafkaError], None] = lambda _: None) -> None:
        self._on_error = on_error
        self.properties = {**conf}
        """The configuration, with passwords."""
        self._conf: dict[str, Any] = {"log_level": 2, "error_cb": self._hear, **conf}

    @property
    def group(self) -> str:
        """Return the name of the consumer group."""
        return str(self.properties.get("group.id", GROUP))

    @property
    def instance_id(self) -> str | None:
        """Return the name of this process in the group, if it keeps one over restarts."""
        return self.properties.get("group.instance.id")

    def consumer(self) -> Consumer:
        """Return a member of the consumer group. It reads only committed messages, from offsets that callers set.

        It reports the end of each partition, too.
        """
        defaults = {"topic.metadata.refresh.interval.ms": 60_000, "partition.assignment.strategy": "roundrobin"}
        return _create(Consumer, {**defaults, **_READ_DEFAULTS, **self._conf, **_READS, "enable.partition.eof": True})

    def reader(self) -> Consumer:
        """Return a consumer that does not join the group, and that reports the end of each partition."""
        return _create(Consumer, {**_READ_DEFAULTS, **self._conf, **_READS, **_ENDS})

    def page_reader(self) -> Consumer:
        """Return a reader for some MB of messages. It fetches little ahead: small batches may unpack to many bytes."""
        little = {"queued.max.messages.kbytes": _PAGE_KB, "fetch.max.bytes": _PAGE_KB << 10}
        return _create(Consumer, {**_READ_DEFAULTS, **self._conf, **_READS, **_ENDS, **little})

    def peeker(self) -> Consumer:
        """Return a reader that fetches little more than the next message of each partition."""
        little = {"queued.max.messages.kbytes": 1, "max.partition.fetch.bytes": _FETCHED_OF_PARTITION}
        return _create(Consumer, {**_READ_DEFAULTS, **self._conf, **_READS, **_ENDS, **little})

    def producer(self, transactional_id: str, seconds: int) -> Producer:
        """Return a producer that writes in transactions. The broker aborts a transaction after `seconds`."""
        transaction_conf = {
            "transactional.id": transactional_id,
            "transaction.timeout.ms": seconds * 1000,
            "linger.ms": 0,
        }
        return _create(Producer, {"compression.type": "gzip", **self._conf, **transaction_conf, **_WRITES})

    def admin(self) -> AdminClient:
        """Return a client that describes, changes and creates topics."""
        return _create(AdminClient, self._conf)

    def _hear(self, error: KafkaError) -> None:
        if not _background_errors and error.name() in _ABOUT:
            _background_errors.append(error)
        self._on_error(error)


_Client = TypeVar("_Client")


def _create(kind: Callable[[dict[str, Any]], _Client], conf: dict[str, Any]) -> _Client:
    """Return a client. Raise InvalidSetting for an unknown property or an invalid value."""
    try:
        return kind(conf)
    except KafkaException as error:
        raise InvalidSetting(f"FEED_ASSETS_KAFKA: {masked(str(error.args[0].str()))}. Correct it.") from error


_READ_DEFAULTS = {"group.id": GROUP, "max.partition.fetch.bytes": _FETCHED_OF_PARTITION}
"""Properties of each consumer that the settings may change."""

_READS: dict[str, Any] = {
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "queued.max.messages.kbytes": _QUEUED_KB,
    "fetch.max.bytes": _FETCHED,
    "receive.message.max.bytes": LONGEST + 512,
}
"""Fixed properties of each consumer, whatever the settings."""


_WRITES: dict[str, Any] = {"message.max.bytes": LONGEST, "batch.size": 16 << 10}
"""Fixed properties of each producer. A topic's size limit applies to a batch of messages, so batches are small."""

_ENDS: dict[str, Any] = {"enable.partition.eof": True, "fetch.wait.max.ms": 10}


@contextmanager
def translated(action: str, client: Consumer | Producer | AdminClient | None = None) -> Generator[None]:
    """Translate Kafka's errors into ours. If `client` got no answer, its background error gives the reason."""
    try:
        yield
    except (KafkaException, TimeoutError) as error:
        if client is not None and (isinstance(error, TimeoutError) or error.args[0].name() in _SILENT_CODES):
            _background_errors.clear()
            client.poll(0)
            if _background_errors:
                raise KafkaUnavailable(f"cannot {action}: {advice(_background_errors[0])}") from error
        if isinstance(error, TimeoutError):
            raise KafkaUnavailable(f"cannot {action}: the broker gives no answer. Check it.") from error
        raise failure(action, error) from error


def say_heard(error: KafkaError) -> None:
    """Print a client's background error on stderr. Clients repeat errors, so print one line a minute of each kind."""
    now = monotonic()
    if now >= _last_logged.get(error.name(), -SAY_SECONDS) + SAY_SECONDS:
        _last_logged[error.name()] = now
        say(f"kafka: {advice(error)}")


def advice(error: KafkaError) -> str:
    """Return the text of a background error, and what to do."""
    about = _ABOUT.get(error.name())
    return f"{masked(error.str())}. Check {f'{about} of' if about else 'the broker, and'} FEED_ASSETS_KAFKA."


def failure(action: str, error: KafkaException, *, may_be_fenced: bool = True) -> FeedAssetsError:
    """Return our error for an error of Kafka. `action` names what failed.

    With `may_be_fenced=False`, an error by which the broker fences this process off counts as an outage.
    """
    if may_be_fenced and is_fenced(error):
        return FencedOff(
            f"cannot {action}: another process does it now. Nothing is lost or duplicated. Give all connectors of a "
            "topic the same group.id, and if they have a group.instance.id, each its own."
        )
    if is_of_content(error):
        return KafkaUnavailable(
            f"cannot {action}: {masked(str(error.args[0]))}. Set the topic's max.message.bytes higher."
        )
    return KafkaUnavailable(f"cannot {action}: {masked(str(error.args[0]))}. Check the broker, and FEED_ASSETS_KAFKA.")


def is_of_content(error: KafkaException) -> bool:
    """Return whether the broker refuses a message because of its content, which is nearly always its size."""
    kafka_error = error.args[0]
    return isinstance(kafka_error, KafkaError) and kafka_error.code() in _CONTENT_CODES


def is_fenced(error: KafkaException) -> bool:
    """Return whether another process with the same transactional id or group.instance.id has fenced this one off."""
    kafka_error = error.args[0]
    if not isinstance(kafka_error, KafkaError):
        return False
    return kafka_error.name() in _FENCED_CODES or (kafka_error.name() == "_FATAL" and "fenced" in kafka_error.str())
