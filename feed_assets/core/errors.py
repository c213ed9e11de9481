"""Every error that feed_assets raises on purpose.

Each message says what was found, what was expected, and what to do.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from feed_assets.core.message_words import LONGEST_REASON, without_middle
from feed_assets.core.secrets import masked


class FeedAssetsError(Exception):
    """The parent of all errors of feed_assets."""

    place: str | None = None
    """The file and line of the user's code that the error is about, such as the line of a declaration."""

    def __str__(self) -> str:
        message = super().__str__()
        return f"{self.place}: {message}" if self.place else message


class InvalidName(FeedAssetsError):
    """A text is not a valid feed, version, partition key or update id."""


class InvalidDefinition(FeedAssetsError):
    """A declaration is wrong. The error is raised when the declaration is made."""


class ModuleNotLoaded(FeedAssetsError):
    """A user's module with definitions does not load; the message says where and why."""


class InvalidEvent(FeedAssetsError):
    """A write event is malformed, or states something impossible about its rows."""


class EventOutOfOrder(InvalidEvent):
    """The marker of a write event is not after the last marker of its table."""


class InvalidNotification(FeedAssetsError):
    """A message is not a notification of a store: the queue is the wrong one, or the message has an unknown form."""


class InvalidReport(FeedAssetsError):
    """A report is malformed, refers to something its dataset lacks, or contradicts a report of the same version."""


class PartitionClosed(FeedAssetsError):
    """A partition was closed as final: no run builds it again, and no report changes it."""


class StillRead(FeedAssetsError):
    """A dataset cannot be retired because other datasets read it."""

    @classmethod
    def by(cls, feed: object, readers: Iterable[object]) -> "StillRead":
        """Return the error that names the readers of a feed."""
        named = ", ".join(map(str, readers))
        return cls(
            f"{feed} is still read by {named}: expected no reader. Move these to another version, or retire them, too."
        )


class IllegalTransition(InvalidReport):
    """A window cannot change from its present state to the requested one."""


class SourceUnavailable(FeedAssetsError):
    """An event source cannot be read: its database or files do not answer, or lack what its declaration names."""


class SourceBusy(SourceUnavailable):
    """An event source is in use by another process at the moment. A later read will succeed."""


class SourceNotGiven(FeedAssetsError):
    """A test reads a source that it does not provide, or provides a source that is not declared."""


class QueueUnavailable(FeedAssetsError):
    """The queue of a store's notifications does not answer, or refuses access. Objects are then found by listing."""


class SinkUnavailable(FeedAssetsError):
    """Our events cannot be published to a sink of the settings: its database refuses them, or does not answer."""

    failed_event: Mapping[str, Any] | None = None
    """The first event that was not accepted, in short, with its log `number`. None for a sink that takes batches."""


class SinkRefused(SinkUnavailable):
    """A sink of single events refuses one of them. After some refusals, the event waits for a person."""


class InvalidSetting(FeedAssetsError):
    """Settings are wrong or incomplete; the message names the variables, never their values."""


class ServiceUnavailable(FeedAssetsError):
    """A service that every run needs is missing: no dataset or input is to blame, and other runs would fail, too."""


class BlackboardError(ServiceUnavailable):
    """The blackboard cannot be used: it is missing, refuses access, or does not answer."""


class BlackboardMissing(BlackboardError):
    """There is no blackboard at this URL: the folder or bucket does not exist."""


class BlackboardRefused(BlackboardError):
    """The store refuses access. This never means that there is no data."""


class BlackboardUnavailable(BlackboardError):
    """The store does not answer, or answers with an error of its own."""


class SecretUnavailable(ServiceUnavailable):
    """A variable refers to a secret that AWS does not give; the message names the variable, never a secret."""


class LedgerUnavailable(ServiceUnavailable):
    """The ledger's database cannot be opened; the message quotes its driver."""


class SparkUnavailable(ServiceUnavailable):
    """A Spark session cannot be started or reached, or has ended: no Java, no cluster, no Connect server."""

    refusal: str | None = None
    """Spark's message if Spark was started and refused the session. None for other reasons, such as a missing Java."""


class SparkDied(SparkUnavailable):
    """Spark ended while a run used it. The run counts as an attempt. After two such runs a person must act."""


class StartRefused(FeedAssetsError):
    """Spark does not start on a run's compute target, although the target answers. The run counts as an attempt."""


class TargetLost(FeedAssetsError):
    """A run's target stopped answering, or does not start Spark for several datasets. The run tries another target."""


class DataCenterLost(TargetLost):
    """The data center of a run stopped answering. The run is tried again, at another place if its dataset allows it."""


class ResourcesBusy(FeedAssetsError):
    """A run by hand has waited in vain for a compute target with enough free resources."""


class OutOfMemory(FeedAssetsError):
    """A run needs more memory than Spark has; Spark keeps running."""


class DiskFull(ServiceUnavailable):
    """No space is left where a run writes: on the blackboard, in the ledger, or on the disk that Spark works on."""


class KafkaUnavailable(ServiceUnavailable):
    """The broker or the schema registry does not answer, or refuses a request. The request is retried."""


class ChunkDiffers(KafkaUnavailable):
    """A different chunk exists under the key of a new chunk: another process wrote it, and may have signalled it."""


class NoTopic(KafkaUnavailable):
    """The broker has no topic of this name."""


class LogTrimmed(FeedAssetsError):
    """A topic partition no longer has, or never had, the offset at which reading must begin."""


class MessageUnreadable(FeedAssetsError):
    """Messages of a topic partition cannot be unpacked, or are not valid Kafka messages."""


class SignalRefused(FeedAssetsError):
    """The broker refuses a signal or a dead letter of a topic partition because of its content."""


class SchemaRefused(FeedAssetsError):
    """The registry refuses the connector's schema under a subject: other schemas are there, or a right is missing."""


class TooManyPartitions(FeedAssetsError):
    """The group assigns more partitions to one connector than it can read."""


class LetterLeft(FeedAssetsError):
    """A dead letter cannot be produced again: it was shortened, or its topic no longer has the message."""


class SignalsLost(FeedAssetsError):
    """The topic of signals has lost the signals of a partition, so the offset to resume at is unknown."""


class FencedOff(FeedAssetsError):
    """Another process now writes the chunks and signals of this topic partition."""


class InvalidShape(FeedAssetsError):
    """A schema cannot become a table of this warehouse."""


class NotMigratable(FeedAssetsError):
    """A table cannot be migrated to a schema without losing data, or cannot hold the data written under that schema."""


class WarehouseUnavailable(ServiceUnavailable):
    """A warehouse does not answer, has no room, or another transaction blocks the load. The load is retried."""


class WarehouseBusy(WarehouseUnavailable):
    """Another process, such as a load or a sensor's check, has the file of the warehouse open for a moment."""


class TableBusy(WarehouseUnavailable):
    """Another program has locked a table, or the table's load needs too much memory. Other tables are loaded."""


class LoadFailed(FeedAssetsError):
    """A warehouse refuses a load and would refuse it again: a person must act. The message quotes the warehouse."""


class ChunkBroken(LoadFailed):
    """A chunk differs from its signal: it is gone, or was changed."""


class KeyStrayed(LoadFailed):
    """A key occurs in two partitions of a topic, so its newest row is unknown."""


class OffsetsMissing(LoadFailed):
    """The next signal of a topic partition begins after the offset up to which the warehouse table was loaded."""


class WarehouseTaken(FeedAssetsError):
    """Another loader has the lease of this warehouse."""


class LeaseHeld(WarehouseTaken):
    """Another loader had the lease before this one began. `last_sign` has its holder, and its last sign of life."""

    def __init__(self, message: str, last_sign: tuple[str, datetime]) -> None:
        super().__init__(message)
        self.last_sign = last_sign


class SpoolBroken(ServiceUnavailable):
    """The receiver cannot write accepted events to its disk, although the disk is not full."""


class InvalidKey(FeedAssetsError):
    """An API key does not exist, or a request for a new key names no feeds that it may write."""


class NoValidUpdate(FeedAssetsError):
    """The partition has no valid update; the message lists why each candidate was skipped."""


class MixedInputs(FeedAssetsError):
    """The newest updates of two inputs were made of different data of one source. A run must not read them together."""


class UpdatePruned(NoValidUpdate):
    """The request needs an update that a prune has removed. The message says how far back history is kept."""


class NotRevalidated(FeedAssetsError):
    """An update cannot be made valid again: its files differ from those that were recorded at its publication."""


class NotOurs(FeedAssetsError):
    """A feed belongs to another team, so its updates are removed only if the request says so explicitly."""


class UpdateAbandoned(FeedAssetsError):
    """A claimed update does not hold exactly what its run wrote, or its id cannot be used. The run gives the id up."""


class UnstableRejects(FeedAssetsError):
    """A function rejected other records when Spark evaluated it again. Records would be lost, or published twice."""


class UpdateChanged(FeedAssetsError):
    """A pinned file was removed or altered after it was listed. A new read finds the update that is valid now."""


class CopyGone(UpdateChanged):
    """The data center of a run no longer has the copy of a pinned update. The source may still have it."""


class CopyDamaged(FeedAssetsError):
    """A copied file does not have the bytes of its source. It is not published, and copied again."""


class TurnLost(FeedAssetsError):
    """Another process has taken over the work for a data center. Nothing more is published by this one."""


class UnreadableUpdate(FeedAssetsError):
    """A pinned file cannot be read as declared: it has another header or format, or a name that Spark would skip."""


class NotAsDeclared(UnreadableUpdate):
    """A pinned file can be read but differs from its declaration. Every run that reads it would fail."""


class FunctionFailed(FeedAssetsError):
    """A user's function or check raised an error; the message names its file and line."""


class FunctionWrong(FunctionFailed):
    """A user's function or check raised an error that a retry would raise again: its code or data must change."""


class NotCompacted(FeedAssetsError):
    """A partition is not compacted: its last build failed, or a check blocks its readers."""


class AlreadyRunning(FeedAssetsError):
    """Another run builds this partition; the message names it."""


class TargetNotEmpty(FeedAssetsError):
    """The folder into which an update should be copied is not empty."""


class DaemonRunning(FeedAssetsError):
    """A Dagster daemon already serves this instance."""


class HomeBusy(FeedAssetsError):
    """Another process holds the start lock of this home for too long."""


class NotIdle(FeedAssetsError):
    """Runs are still requested after many ticks, although all work should be done."""


class AlertNotDelivered(FeedAssetsError):
    """A channel did not accept an alert. Delivery is retried. The message has no passwords or other secrets."""


class AlertChannelDown(AlertNotDelivered):
    """A channel accepts no alerts at the moment: it does not answer, or refuses the sender."""


class DeliveryFailed(FeedAssetsError):
    """A target of a subscription did not accept a change. Delivery is retried. The message has no secrets."""


class DeliveryRefused(DeliveryFailed):
    """A target refused a change. After some refusals, the delivery waits for a person."""


class DeliveryTargetDown(DeliveryFailed):
    """A target accepts no changes at the moment. Nothing else is sent there until the next try."""


class DemoFailed(FeedAssetsError):
    """The demo's outcome is not as expected."""


def in_short(error: Exception) -> str:
    """Return an error in one line, without secrets. The line of a foreign error begins with the name of its class."""
    message = masked(without_middle(str(error).strip().partition("\n")[0], LONGEST_REASON))
    return message if isinstance(error, FeedAssetsError) else f"{type(error).__name__}: {message}"
