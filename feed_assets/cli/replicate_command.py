"""`feed-assets replicate`: copies of datasets in other data centers."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from getpass import getuser
from typing import TYPE_CHECKING, Annotated

import typer

from feed_assets.cli.feed import AsJson, PartitionKey
from feed_assets.cli.loaded_location import Module, ledger_of_settings, load_graph, open_services
from feed_assets.cli.progress import announced, progress
from feed_assets.cli.project import has_module
from feed_assets.cli.show import Values, View, show
from feed_assets.cli.terminal import echo
from feed_assets.core.data_centers import PRIMARY
from feed_assets.core.errors import FeedAssetsError, InvalidName, InvalidSetting, in_short
from feed_assets.core.feeds import Feed
from feed_assets.core.isolation import failing_alone

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from feed_assets.replication.comparison import Difference
    from feed_assets.replication.places import Place
    from feed_assets.runs.services import Services

app = typer.Typer(help="Copies of datasets in other data centers.", no_args_is_help=True)

PlaceName = Annotated[
    str | None, typer.Argument(metavar="[PLACE]", help="A data center of the settings; by default all of them.")
]
AnyPlace = Annotated[str, typer.Argument(metavar="PLACE", help="A data center of the settings, or primary.")]
OnePlace = Annotated[str, typer.Argument(metavar="PLACE", help="A data center of the settings.")]
AnyFeed = Annotated[str | None, typer.Argument(metavar="[FEED]", help="A feed of the place; by default all of them.")]
Quick = Annotated[bool, typer.Option("--quick", help="Compare names and sizes alone. By default all bytes are read.")]


class CopiesView(View):
    """Copies of one dataset in one place. `lag` is in seconds."""

    place: str
    feed: str
    partitions: int
    complete: int
    waiting: int
    waiting_bytes: int
    lag: float | None
    error: str | None
    paused: str | None = None
    down: str | None = None


class DifferenceView(View):
    """A difference between a place and the source. `repaired` is empty if nothing was to be repaired."""

    partition: str
    update_id: str
    kind: str
    reason: str
    repaired: str = ""


@app.command()
def ls(place: PlaceName = None, as_json: AsJson = False) -> None:
    """List, for each place and dataset, the partitions that are complete there, what waits, and the lag in seconds."""
    from feed_assets.ledger import places_down
    from feed_assets.replication import turn
    from feed_assets.replication.place_overview import overview
    from feed_assets.runs.services import utc_now
    from feed_assets.settings import settings

    views = list[CopiesView]()
    with ledger_of_settings(makes=False).read() as connection:
        for name in _names(place):
            paused, patterns = turn.why_paused(connection, name), settings().data_center(name).datasets
            health, copies = places_down.health(connection).get(name), overview(connection, name, patterns, utc_now())
            _warn(connection, name, patterns, [each.feed for each in copies])
            for each in copies:
                fields = {**vars(each), "feed": str(each.feed), "paused": paused, "down": health and health.why}
                views.append(CopiesView.model_validate(fields))
    show(views, as_json, "" if views else "no dataset of a data center has an update yet")


@app.command()
def run(place: PlaceName = None, module: Module = None, as_json: AsJson = False) -> None:
    """Copy now what waits. Exit with 1 if a task fails, if another process copies, or if a place is paused or away."""
    from feed_assets.replication.place_overview import unfinished

    services, results, problems = _services(module), list[Values](), dict[str, str]()
    for name in _names(place):
        with failing_alone(problems, name):
            results.append(_run(services, name))
    show(results, as_json)
    with services.ledger.read() as connection:
        notes = {each.root["place"]: unfinished(connection, **each.root) for each in results}
    problems |= {name: note for name, note in notes.items() if note}
    for name, problem in problems.items():
        echo(f"feed-assets: the data center {name}: {problem}", err=True)
    if problems:
        raise typer.Exit(1)


def _run(services: "Services", name: str) -> Values:
    """Do the tasks of a place, also those that wait for their next try."""
    from feed_assets.replication import replica_tasks
    from feed_assets.replication.replicator import replicate

    place = _opened(services, name)
    with services.ledger.write() as connection:
        replica_tasks.retry(connection, name, services.now())
    return Values.of(place=name, **vars(replicate(services, place)))


@app.command()
def verify(
    place: OnePlace,
    feed: AnyFeed = None,
    partition: PartitionKey = "",
    quick: Quick = False,
    module: Module = None,
    as_json: AsJson = False,
) -> None:
    """Compare a place with the source, file by file. Exit with 1 if they differ."""
    from feed_assets.replication.place_marks import check_mark, mark_of

    services = _services(module)
    opened = _opened(services, place)
    check_mark(services, opened, mark_of(opened))
    views = [_view(each) for each in _differences(services, opened, feed, partition, quick=quick)]
    show(views, as_json, "" if views else f"{place} has what the source has")
    if views:
        raise typer.Exit(1)


@app.command()
def repair(
    place: OnePlace,
    feed: AnyFeed = None,
    partition: PartitionKey = "",
    quick: Quick = False,
    module: Module = None,
    as_json: AsJson = False,
) -> None:
    """Make a place equal to the source: withdraw and copy again what `verify` finds. Exit with 1 if some stays."""
    from feed_assets.replication.comparison import repair as repair_one
    from feed_assets.replication.copy_ends import CopyEnds
    from feed_assets.replication.place_marks import check_place
    from feed_assets.replication.transitions_read import fill
    from feed_assets.replication.turn import Turn

    services = _services(module)
    opened = _opened(services, place)
    turn, views = Turn(services.ledger, place, services.now), list[DifferenceView]()
    turn.take_or_raise()
    try:
        # A pattern that was removed, and comes back, begins anew. So its copies that go now come back, too.
        fill(services.ledger, opened, services.now(), services.of_others())
        check_place(services, opened, is_new=not feed)
        for each in _differences(services, opened, feed, partition, quick=quick):
            try:
                turn.keep()
                repair_one(CopyEnds(services, opened, turn), each)
                views.append(_view(each, "yes"))
            except FeedAssetsError as error:
                views.append(_view(each, f"no: {in_short(error)}"))
    finally:
        turn.end()
    show(views, as_json, "" if views else f"{place} has what the source has")
    if any(each.repaired != "yes" for each in views):
        raise typer.Exit(1)


@app.command()
def pause(
    place: OnePlace,
    why: Annotated[str, typer.Option("--why", help="The reason, for others.")] = "paused by hand",
    resume: Annotated[bool, typer.Option("--resume", help="End the pause.")] = False,
    as_json: AsJson = False,
) -> None:
    """Stop the copies into a place, or resume them. A copy in progress ends before it is published."""
    from feed_assets.replication import turn
    from feed_assets.runs.services import utc_now
    from feed_assets.settings import settings

    settings().data_center(place)
    turn.pause(ledger_of_settings(makes=False), place, None if resume else why, getuser(), utc_now())
    show(Values.of(place=place, paused=None if resume else why), as_json)


@app.command()
def down(
    place: AnyPlace,
    why: Annotated[str, typer.Option("--why", help="The reason, for others.")] = "marked by hand",
    as_json: AsJson = False,
) -> None:
    """Let a place get no new runs. Datasets that may run elsewhere do so when their data are there; others wait."""
    _mark(place, why, as_json)


@app.command()
def up(place: AnyPlace, as_json: AsJson = False) -> None:
    """Let a place get runs again, whether a person or its probes found it down."""
    _mark(place, None, as_json)


def _mark(place: str, why: str | None, as_json: bool) -> None:
    from feed_assets.ledger import places_down
    from feed_assets.runs.services import utc_now
    from feed_assets.settings import settings

    if place != PRIMARY:
        settings().data_center(place)
    places_down.mark(ledger_of_settings(makes=False), place, why, getuser(), utc_now())
    show(Values.of(place=place, down=why), as_json)


@app.command()
def forget(place: OnePlace, as_json: AsJson = False) -> None:
    """Forget a place that is no longer in the settings: its tasks, alerts and positions in the log."""
    from feed_assets.replication.place_overview import resolve_alerts
    from feed_assets.replication.transitions_read import forget_place
    from feed_assets.runs.services import utc_now
    from feed_assets.settings import settings

    if place in settings().data_centers.get_secret_value():
        raise InvalidName(
            f"{place} is a data center of FEED_ASSETS_DATA_CENTERS: expected one that is no longer there."
        )
    ledger = ledger_of_settings(makes=False)
    with ledger.write() as connection:
        count = forget_place(connection, place)
    resolve_alerts(ledger, place, utc_now())
    if not count:
        echo(f"feed-assets: the ledger has no copies or tasks of a place {place!r}", err=True)
    show(Values.of(place=place, forgotten=count), as_json)


def _names(place: str | None) -> list[str]:
    """Return the names of the places in the settings, or the named one. Raise InvalidSetting if there is none."""
    from feed_assets.settings import settings

    names = [place] if place else sorted(settings().data_centers.get_secret_value())
    if not names:
        raise InvalidSetting("FEED_ASSETS_DATA_CENTERS has no data center: expected one. Add it there.")
    return names


def _services(module: str | None) -> "Services":
    """Return the services. Datasets of other code locations may be on further blackboards of ours, too."""
    from feed_assets.runs.services import elsewhere_of
    from feed_assets.settings import settings

    graph = load_graph(module) if module or has_module() else None
    services = open_services(graph, makes=False)
    return replace(services, elsewhere=elsewhere_of(settings(), services.elsewhere)) if graph else services


def _opened(services: "Services", name: str) -> "Place":
    from feed_assets.replication.places import open_place
    from feed_assets.settings import settings

    return open_place(settings(), name, *services.boards())


def _differences(
    services: "Services", place: "Place", feed: str | None, partition: str, *, quick: bool
) -> "Iterator[Difference]":
    from feed_assets.replication.comparison import check_names, compare, feeds_of

    feeds = [Feed.parse(feed)] if feed else feeds_of(services, place)
    if not feed:
        with services.ledger.read() as connection:
            _warn(connection, place.name, place.center.datasets, feeds)
    with progress() as doing:
        for each in announced(feeds, doing, "comparing"):
            if feed:
                check_names(services, place, each, partition)
            yield from compare(services, place, [each], partition or None, is_deep=not quick)


def _warn(connection: "Connection", place: str, patterns: Collection[str], feeds: Iterable[Feed]) -> None:
    """Print each pattern without a feed, so that nobody takes a list without it for complete, and what is left."""
    from feed_assets.replication.place_overview import left_notes
    from feed_assets.replication.places import unmatched

    notes = [
        f"no feed with an update matches the pattern {each!r} of the data center {place}: expected one such as "
        "shop/sales/v1.0, or shop/*"
        for each in unmatched(patterns, feeds)
    ]
    for note in [*notes, *left_notes(connection, place, patterns)]:
        echo(f"feed-assets: {note}", err=True)


def _view(each: "Difference", repaired: str = "") -> DifferenceView:
    fields = {**vars(each), "partition": str(each.partition), "repaired": repaired}
    return DifferenceView.model_validate(fields)
