"""`feed-assets subscriptions`: changes that the targets of `on_change` have not accepted, and what to do about them."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import AliasPath, Field

from feed_assets.cli.feed import AsJson
from feed_assets.cli.loaded_location import ledger_of_settings
from feed_assets.cli.show import Values, View, show
from feed_assets.core.errors import InvalidName

if TYPE_CHECKING:
    import sqlalchemy as sa

    from feed_assets.deliveries.outbox import Delivery

app = typer.Typer(
    help="Subscriptions: changes of datasets that a webhook, view or statement has not accepted yet.",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the subscription in on_change().")]
Lane = Annotated[
    str | None, typer.Argument(metavar="[PARTITION]", help="A partition or window, as `ls NAME` shows it.")
]


class BacklogView(View):
    """The changes of one subscription that are not delivered."""

    subscription: str
    waiting: int
    dead: int
    since: str
    error: str | None


class FailingView(View):
    """A change whose last try failed. It waits for the next try at `due` (UTC), or for a person."""

    partition: str = Field(validation_alias="lane")
    transition: str = Field(validation_alias=AliasPath("event", "data", "transition"))
    time: str = Field(validation_alias=AliasPath("event", "time"))
    sequence: int
    person: bool = Field(validation_alias="is_dead")
    tries: int
    due: datetime
    error: str | None


@app.command()
def ls(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A subscription; by default all.")] = None,
    as_json: AsJson = False,
) -> None:
    """List how many changes wait for each subscription. With NAME, list the changes whose last try failed, and why."""
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
    """Deliver the changes that wait for a person again, at the next tick. The changes behind them follow."""
    from feed_assets.deliveries import outbox

    ledger = ledger_of_settings(makes=False)
    with ledger.write() as connection:
        chosen = _dead(connection, name, partition)
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

    With a partition, skip its next change, also if the target is still tried.
    """
    from feed_assets.deliveries import delivery_alerts, outbox, positions

    if everything and partition is not None:
        raise InvalidName(f"found {partition} and --all: expected one of them. --all forgets the whole subscription.")
    ledger = ledger_of_settings(makes=False)
    with ledger.write() as connection:
        if everything:
            _check_known(connection, name)
            count = positions.forget(connection, name)
        else:
            head = outbox.first(connection, name, partition) if partition else None
            chosen = [head] if head else _dead(connection, name, partition)
            outbox.remove(connection, chosen)
            count = len(chosen)
    delivery_alerts.resolve_gone(ledger, datetime.now(UTC))
    show(Values.of(subscription=name, dropped=count), as_json)


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


def _check_known(connection: "sa.Connection", name: str) -> None:
    from feed_assets.deliveries import outbox

    names = [each.subscription for each in outbox.backlogs(connection)]
    if name not in names:
        expected = ", ".join(names) or "one that has had a tick"
        raise InvalidName(f"the ledger has no subscription {name}: expected {expected}.")
