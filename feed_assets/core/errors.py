"""Every error that feed_assets raises on purpose.

Each message says what was found, what was expected, and what to do.
"""

from collections.abc import Iterable

from feed_assets.core.secrets import shown


class FeedAssetsError(Exception):
    """The parent of all of them."""

    place: str | None = None
    """The file and line of the user's that it is about: where a declaration stands."""

    def __str__(self) -> str:
        said = super().__str__()
        return f"{self.place}: {said}" if self.place else said


class InvalidName(FeedAssetsError):
    """A feed, version, partition key or update id that is not one."""


class InvalidDefinition(FeedAssetsError):
    """A dataset that cannot be declared like this: found when the definition is made."""


class ModuleNotLoaded(FeedAssetsError):
    """A user's module with definitions does not load; the message says where and why."""


class InvalidEvent(FeedAssetsError):
    """A write event that is none, or that says of its rows what cannot be."""


class EventOutOfOrder(InvalidEvent):
    """A write event whose marker does not come after its table's last one."""


class InvalidNotification(FeedAssetsError):
    """A message that no store has written: it is of somebody else's queue, or of a form that we do not know."""


class InvalidReport(FeedAssetsError):
    """A report of counts or quality that is none, names what its dataset has not, or contradicts one of its version."""


class PartitionClosed(FeedAssetsError):
    """A partition is final, as somebody has said: no run makes it again, and no report changes it."""


class StillRead(FeedAssetsError):
    """A dataset cannot be retired, as others are made of it."""

    @classmethod
    def by(cls, feed: object, readers: Iterable[object]) -> "StillRead":
        """Who still reads it."""
        named = ", ".join(map(str, readers))
        return cls(
            f"{feed} is still read by {named}: expected nobody. Move them to another version, or retire them, too."
        )


class IllegalTransition(InvalidReport):
    """A window cannot come from the state that it is in to the other one."""


class SourceUnavailable(FeedAssetsError):
    """An event source cannot be read: its database or files do not answer, or lack what its declaration names."""


class SourceBusy(SourceUnavailable):
    """An event source is in use by another process for the moment: the next look finds it free."""


class SourceNotGiven(FeedAssetsError):
    """A test would reach a source that it does not give itself, or gives one that nothing declares."""


class QueueUnavailable(FeedAssetsError):
    """The queue through which a store tells of its objects does not answer, or refuses: the listing finds them."""


class SinkUnavailable(FeedAssetsError):
    """Our events cannot be published where a setting says: its database refuses them, or does not answer."""


class InvalidSetting(FeedAssetsError):
    """Settings that are wrong or not complete; the message names the variables, never what is in them."""


class ServiceUnavailable(FeedAssetsError):
    """What every run needs is not there: no dataset and no input is to blame, and no other run would do better."""


class BlackboardError(ServiceUnavailable):
    """The blackboard cannot be used: it is missing, refuses access, or does not answer."""


class BlackboardMissing(BlackboardError):
    """No blackboard at this URL: the folder or bucket does not exist."""


class BlackboardRefused(BlackboardError):
    """The store refuses access. Never to be read as 'there is no data'."""


class BlackboardUnavailable(BlackboardError):
    """The store does not answer, or answers with an error of its own."""


class LedgerUnavailable(ServiceUnavailable):
    """The ledger's database cannot be opened; the message says what its driver says."""


class SparkUnavailable(ServiceUnavailable):
    """A Spark session cannot be started or reached, or has ended: no Java, no cluster, no Connect server."""


class SparkDied(SparkUnavailable):
    """Spark ended while a run used it: the run counts as an attempt, and two of them stop its partition."""


class OutOfMemory(FeedAssetsError):
    """A run needs more memory than Spark has, which goes on."""


class DiskFull(ServiceUnavailable):
    """No space is left where a run writes: on the blackboard, in the ledger, or on the disk that Spark works on."""


class KafkaUnavailable(ServiceUnavailable):
    """The broker or the schema registry does not answer, or refuses; whatever it was, it is tried again."""


class ChunkDiffers(KafkaUnavailable):
    """There is another chunk where one is to be put: another process has cut, and perhaps signalled it."""


class NoTopic(KafkaUnavailable):
    """The broker has no topic of this name."""


class LogTrimmed(FeedAssetsError):
    """A topic partition has no longer, or never had, the offsets from which on it is to be read."""


class LetterLeft(FeedAssetsError):
    """A dead letter cannot be produced again: it is cut, or older than what its topic keeps."""


class SignalsLost(FeedAssetsError):
    """The downstream partition had signals and has none now, so nobody knows where to go on."""


class FencedOff(FeedAssetsError):
    """Another process signals the chunks of this topic partition."""


class InvalidShape(FeedAssetsError):
    """A schema of which no table can be made, or none in this warehouse."""


class NotMigratable(FeedAssetsError):
    """A table cannot become what a schema asks for without losing data, or cannot hold what was written by it."""


class WarehouseUnavailable(ServiceUnavailable):
    """A warehouse does not answer, or has no room, or another transaction is in the way: it is tried again."""


class WarehouseBusy(WarehouseUnavailable):
    """Another process has the file of the warehouse open: a load, or a look of a sensor, takes moments."""


class LoadFailed(FeedAssetsError):
    """What a warehouse would refuse again: it is for a person to look at; the message has the warehouse's own words."""


class ChunkBroken(LoadFailed):
    """A chunk is not what its signal says: it is gone, or was changed."""


class KeyStrayed(LoadFailed):
    """A key comes from two partitions, so nobody knows which of its rows is the newest."""


class OffsetsMissing(LoadFailed):
    """The signals of a partition do not go on where its table ends."""


class WarehouseTaken(FeedAssetsError):
    """Another loader has the lease of this warehouse."""


class SpoolBroken(ServiceUnavailable):
    """The receiver cannot write what it accepts to its disk, which is not full."""


class InvalidKey(FeedAssetsError):
    """An API key that is none, names what it cannot, or is not there."""


class NoValidUpdate(FeedAssetsError):
    """The partition has no valid update; the message lists why each candidate was skipped."""


class MixedInputs(FeedAssetsError):
    """The newest updates of two inputs were made of different data of one source: they are not read together."""


class UpdatePruned(NoValidUpdate):
    """The answer would need an update that a prune has removed; the message says from when on history is kept."""


class NotRevalidated(FeedAssetsError):
    """An update cannot be made valid again: its files are not those that were recorded when it was published."""


class NotOurs(FeedAssetsError):
    """A feed that somebody else writes: its updates are removed only where that is asked for by name."""


class UpdateAbandoned(FeedAssetsError):
    """What lies under a claimed update is not exactly what was written: the id is given up."""


class UnstableRejects(FeedAssetsError):
    """A function rejected other records when it ran again: some would be lost, or both published and rejected."""


class UpdateChanged(FeedAssetsError):
    """A pinned file is gone or altered since it was listed: updates are immutable, so read again."""


class UnreadableUpdate(FeedAssetsError):
    """A pinned file cannot be read as declared: another header, format or a name that Spark would skip."""


class NotAsDeclared(UnreadableUpdate):
    """A pinned file that can be read differs from its declaration: each run on it would end the same way."""


class FunctionFailed(FeedAssetsError):
    """A user's function or check raised an error; the message names its file and line."""


class FunctionWrong(FunctionFailed):
    """A user's function or check raised an error that it raises each time: its code or its data need a change."""


class AlreadyRunning(FeedAssetsError):
    """Another run builds this partition; the message names it."""


class TargetNotEmpty(FeedAssetsError):
    """The folder that an update is to be copied into holds something already."""


class DaemonRunning(FeedAssetsError):
    """A Dagster daemon does on this instance what was to be done in this process."""


class HomeBusy(FeedAssetsError):
    """Another process has been starting in this home for longer than that can take."""


class NotIdle(FeedAssetsError):
    """Ticks go on requesting runs where they should have come to rest."""


class AlertNotDelivered(FeedAssetsError):
    """A channel did not take an alert, which is tried again; the message has no passwords and no addresses' secrets."""


class AlertChannelDown(AlertNotDelivered):
    """It would not take any other one now: it does not answer, or refuses who asks."""


class DemoFailed(FeedAssetsError):
    """The demo's outcome is not what it should be."""


def in_short(error: Exception) -> str:
    """An error in one line, without secrets: ours in its own words, any other with its class."""
    said = shown(str(error).strip().partition("\n")[0])
    return said if isinstance(error, FeedAssetsError) else f"{type(error).__name__}: {said}"
