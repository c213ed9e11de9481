"""`feed-assets subscriptions`: what targets of `on_change`, sinks and alert channels have not accepted, and cures."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import AliasChoices, AliasPath, Field

from feed_assets.cli.feed import AsJson
from feed_assets.cli.loaded_location import ledger_of_settings
from feed_assets.cli.show import Values, View, show
from feed_assets.core.errors import InvalidName

if TYPE_CHECKING:
    import sqlalchemy as sa

    from feed_assets.deliveries.outbox import Delivery

app = typer.Typer(
    help="Subscriptions, sinks of events and alert channels: what they have not accepted yet.",
    no_args_is_help=True,
)

Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="A subscription of on_change(), a sink or an alert channel, as `ls` shows it."),
]
Lane = Annotated[
    str | None, typer.Argument(metavar="[PARTITION]", help="A partition, window or alert, as `ls NAME` shows it.")
]


class BacklogView(View):
    """The changes of one subscription that are not delivered, or the failure of a sink or an alert channel."""

    subscription: str
    kind: str
    waiting: int | None
    dead: int
    since: str
    last_tick: datetime | None
    error: str | None


class FailingView(View):
    """A change whose last try failed. It waits for the next try at `due` (UTC), or for a person.

    For a sink, `partition` is the job of the refused OpenLineage event. For a channel, it is the alert. Both may be ''.
    """

    partition: str = Field(validation_alias=AliasChoices(AliasPath("event", "subject"), "lane"))
    transition: str = Field("", validation_alias=AliasPath("event", "data", "transition"))
    time: str = Field(validation_alias=AliasPath("event", "time"))
    sequence: int = Field(validation_alias=AliasChoices(AliasPath("event", "number"), "sequence"))
    person: bool = Field(validation_alias="is_dead")
    tries: int
    due: datetime
    error: str | None


@app.command()
def ls(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A subscription; by default all.")] = None,
    as_json: AsJson = False,
) -> None:
    """List how many changes wait for each subscription, and the sinks and alert channels that fail.

    With NAME, list the changes whose last try failed, and why.
    """
    from feed_assets.deliveries import outbox

    with ledger_of_settings(makes=False).read() as connection:
        if name is None:
            backlogs = outbox.backlogs(connection)
            show(BacklogView.each(backlogs), as_json, "" if backlogs else "no subscription has had a tick yet")
            return
        _check_known(connection, name)
        failing, problem = outbox.failing(connection, name), outbox.problem(connection, name)
    show(FailingView.each(failing), as_json, problem or "the last try of each change was accepted, or there was none")


@app.command()
def retry(name: Name, partition: Lane = None, as_json: AsJson = False) -> None:
    """Deliver the changes that wait for a person again, at the next tick. The changes behind them follow.

    A sink or an alert channel is tried at the next tick, also if it waits for another try.
    """
    from feed_assets.deliveries import outbox

    ledger = ledger_of_settings(makes=False)
    with ledger.write() as connection:
        is_subscription = outbox.kind_of(name) == "subscription"
        chosen = (_dead if is_subscription else _failed)(connection, name, partition)
        outbox.retry(connection, chosen, datetime.now(UTC))
    show(Values.of(subscription=name, retried=len(chosen)), as_json)


@app.command()
def drop(
    name: Name,
    partition: Lane = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Forget the subscription with all its waiting changes.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Skip the changes that wait for a person. The changes behind them are delivered.

    With a partition, skip its next change, also if the target is still tried. For a sink of OpenLineage, skip the one
    event that it refuses, and print the event. Other sinks and alert channels skip nothing.
    """
    from feed_assets.deliveries import delivery_alerts, outbox, outlets, owners, positions

    if everything and partition is not None:
        raise InvalidName(f"found {partition} and --all: expected one of them. --all forgets the whole subscription.")
    ledger, skipped = ledger_of_settings(makes=False), dict[str, object]()
    with ledger.write() as connection:
        if everything:
            _check_known(connection, name)
            owners.refuse_live(connection, name, datetime.now(UTC))
            count = positions.forget(connection, name)
        elif (kind := outbox.kind_of(name)) != "subscription":
            if partition is not None:
                raise InvalidName(f"found {partition}: expected none. A {kind} has one event that waits, if any.")
            skipped, count = {**outlets.skip(connection, name)}, 1
        else:
            head = outbox.first(connection, name, partition) if partition else None
            chosen = [head] if head else _dead(connection, name, partition)
            outbox.remove(connection, chosen)
            count = len(chosen)
    delivery_alerts.resolve_gone(ledger, datetime.now(UTC))
    show(Values.of(subscription=name, dropped=count, **skipped), as_json)


def _dead(connection: "sa.Connection", name: str, partition: str | None) -> "list[Delivery]":
    """Return the changes of a subscription that wait for a person. Raise InvalidName if there are none."""
    from feed_assets.deliveries import outbox

    _check_known(connection, name)
    dead = [each for each in outbox.dead(connection, name) if partition in (None, each.lane)]
    if not dead:
        where = f" in {partition}" if partition else ""
        raise InvalidName(
            f"nothing{where} of the subscription {name} waits for a person: see `subscriptions ls {name}`."
        )
    return dead


def _failed(connection: "sa.Connection", name: str, partition: str | None) -> "list[Delivery]":
    """Return the failures of a sink or an alert channel. Raise InvalidName if there are none."""
    from feed_assets.deliveries import outbox

    _check_known(connection, name)
    rows = outbox.waiting(connection, name)
    chosen = [each for each in rows if partition in (None, each.lane, each.event.get("subject"))]
    if not chosen:
        raise InvalidName(f"nothing of {partition} waits for {name!r}: see `subscriptions ls`.")
    return chosen


def _check_known(connection: "sa.Connection", name: str) -> None:
    from feed_assets.deliveries import outbox

    names = [each.subscription for each in outbox.backlogs(connection)]
    if name not in names:
        expected = ", ".join(names) or "one that has had a tick"
        if (kind := outbox.kind_of(name)) != "subscription":
            raise InvalidName(f"the last try of the {kind} {name!r} was accepted, or there was none: see `ls`.")
        raise InvalidName(f"the ledger has no subscription {name}: expected {expected}.")
