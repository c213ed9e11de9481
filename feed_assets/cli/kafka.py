"""`feed-assets kafka`: how far topics have become chunks, the last chunks, and the dead letters."""

from datetime import datetime
from typing import Annotated

import typer
from pydantic import Field

from feed_assets.cli.connector import named_topics
from feed_assets.cli.feed import AsJson
from feed_assets.cli.loaded_location import Module, ledger_of_settings, load_graph
from feed_assets.cli.pattern_topics import patterns_in
from feed_assets.cli.show import Values, View, show
from feed_assets.core.errors import FeedAssetsError, InvalidName, LogTrimmed, NoTopic, SignalsLost
from feed_assets.home import say
from feed_assets.settings import settings

app = typer.Typer(help="Kafka topics that become chunks: lag, signals, dead letters.", no_args_is_help=True)

TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="A topic of the code location, such as 'ads.clicks'.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="List this many of each partition at most.")]


class LagView(View):
    """A topic partition, and the offset up to which its messages are signalled."""

    topic: str
    partition: int
    end: int
    signalled: int
    behind: int
    since: datetime | None = None
    """The time (UTC) at which the first message without a signal was produced."""


class SignalView(View):
    """A chunk that was signalled."""

    partition: int
    first_offset: int
    last_offset: int
    records: int
    dead_letters: int
    schema_id: int | None
    size: int
    path: str | None


class LetterView(View):
    """A message that is not a valid record, with its partition and offset, and the reason."""

    partition: int
    offset: int
    at: datetime
    open: bool = Field(validation_alias="is_open")
    reason: str


@app.callback()
def kafka() -> None:
    """Kafka topics that become chunks: lag, signals, dead letters."""
    from feed_assets.kafka import check_installed

    check_installed()


@app.command()
def lag(
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC]...", help="Topics of the code location; by default all.")
    ] = None,
    module: Module = None,
    as_json: AsJson = False,
) -> None:
    """Show up to which offset each partition is signalled, how many messages follow, and since when they wait."""
    from feed_assets.kafka.lag import lag as lag_of
    from feed_assets.sources.topic_events import clients_for

    lag_views, errors = list[LagView](), list[FeedAssetsError]()
    for name in named_topics(load_graph(module), topics or []):
        try:
            lag_views += [LagView(topic=name, **vars(each)) for each in lag_of(clients_for(name), name)]
        except (NoTopic, SignalsLost, LogTrimmed) as error:
            errors.append(error)
    if lag_views or not errors:
        show(lag_views, as_json)
    for error in errors[:-1]:
        say(str(error))
    for error in errors[-1:]:
        raise error


@app.command()
def signals(topic: TopicName, limit: Limit = 10, module: Module = None, as_json: AsJson = False) -> None:
    """List the last signalled chunks of each partition, newest first."""
    from feed_assets.kafka.signals import newest
    from feed_assets.sources.topic_events import clients_for

    named_topics(load_graph(module), [topic])
    newest_signals = newest(clients_for(topic), topic, limit)
    show(SignalView.each(newest_signals), as_json, "" if newest_signals else f"no chunk of {topic} is signalled yet")


@app.command()
def dead_letters(
    topic: TopicName,
    limit: Limit = 20,
    replay: Annotated[
        bool,
        typer.Option("--replay", help="Produce the messages of all open dead letters to the topic again, once each."),
    ] = False,
    drop: Annotated[
        bool, typer.Option("--drop", help="Count all open dead letters as resolved, and produce nothing.")
    ] = False,
    apply: Annotated[
        bool, typer.Option("--apply", help="Replay or drop the messages. Without --apply they are only listed.")
    ] = False,
    module: Module = None,
    as_json: AsJson = False,
) -> None:
    """List the messages that are not valid records, newest first, each with its partition, offset and reason.

    A dead letter is open until somebody replays or drops it. A replayed message that is still invalid becomes a new
    dead letter, so first mend the cause of the error. A replayed message counts as the newest of its key, even if newer
    messages were produced meanwhile.
    """
    from feed_assets.kafka import dead_letters as letters
    from feed_assets.sources.topic_events import clients_for

    if replay and drop:
        raise InvalidName("--replay and --drop: expected one of the two.")
    rules = named_topics(load_graph(module), [topic])[topic].topic
    clients = clients_for(topic)
    if apply and (replay or drop):
        count = letters.settle(
            clients,
            topic,
            produces=replay,
            mask_key=settings().mask_key_bytes,
            has_markers=rules is not None and rules.snapshot_markers is not None,
        )
        show(Values.of(topic=topic, **{"replayed" if replay else "dropped": count}), as_json)
        return
    listed = letters.letters(clients, topic, limit)
    note = f"--apply {'produces all open ones again' if replay else 'drops all open ones'}" if replay or drop else ""
    show(LetterView.each(listed), as_json, note if listed else f"{topic} has no dead letters")


@app.command()
def forget(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="A topic that matched a pattern of kafka_topics.")],
    apply: Annotated[
        bool, typer.Option("--apply", help="Remove the record. Without --apply it is only shown.")
    ] = False,
    module: Module = None,
    as_json: AsJson = False,
) -> None:
    """Remove the record of a topic that matched a pattern and was deleted at the broker.

    After the next reload of the code location, the topic and its warehouse tables are no assets. Rows, chunks and
    signals stay. A topic that the broker has is refused, because the connector would record it again.
    """
    from feed_assets.ledger import matched_topics

    prefixes, ledger = [each.prefix for each in patterns_in(load_graph(module))], ledger_of_settings()
    with ledger.read() as connection:
        holding = [each for each in prefixes if topic in matched_topics.recorded(connection, each)]
    if not holding:
        raise InvalidName(f"no topic {topic!r} is recorded for a pattern here: expected one that kafka_topics matched.")
    if _is_at_broker(topic):
        raise InvalidName(f"the broker has the topic {topic}: expected one that is deleted. Or change the pattern.")
    if apply:
        with ledger.write() as connection:
            for each in holding:
                matched_topics.forget(connection, each, topic)
    note = "" if apply else "--apply removes the record"
    show(Values.of(topic=topic, patterns=holding, forgotten=apply), as_json, note)


def _is_at_broker(topic: str) -> bool:
    """Return whether the broker has a topic. Raise KafkaUnavailable if it does not answer."""
    from feed_assets.kafka.clients import translated
    from feed_assets.kafka.companion_topics import partitions
    from feed_assets.sources.topic_events import clients_for

    admin = clients_for(topic).admin()
    with translated(f"look for {topic}", admin):
        return partitions(admin, topic) > 0
