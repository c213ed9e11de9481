"""Inputs of a run in a data center: they are read from its blackboard, if it has exactly the pinned updates."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from feed_assets.core.attempts import OF_ITS_OWN
from feed_assets.core.data_centers import board_key, title_of
from feed_assets.core.errors import (
    CopyGone,
    DataCenterLost,
    NoValidUpdate,
    ServiceUnavailable,
    TargetLost,
    in_short,
)
from feed_assets.core.feeds import Update
from feed_assets.feeds import read
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger import place_copies
from feed_assets.runs.maker import Task
from feed_assets.runs.recipe import Recipe
from feed_assets.runs.services import Services


def board_names(recipe: Recipe, place: str | None) -> dict[str, str | None]:
    """Return the name of the blackboard from which each input is read, or None for the default one.

    Inputs on named blackboards are read there. All others are read from the blackboard of the run's place.
    """
    return {each.name: each.blackboard or (board_key(place) if place else None) for each in recipe.sources}


def check_answers(services: Services) -> None:
    """Open the blackboard of the run's place. Raise DataCenterLost if it does not answer.

    Without this, an unreachable place would count as an outage of our own blackboard, which stops all other runs.
    """
    if services.place is not None:
        try:
            services.board_named(board_key(services.place))
        except ServiceUnavailable as error:
            raise _lost(services.place, error) from error


def at_place(services: Services, task: Task) -> Task:
    """Return a task whose inputs have the files of the copies in the run's place, as the place lists them.

    Raise CopyGone if a copy is not there any more, and DataCenterLost if the place does not answer.
    """
    if services.place is None:
        return task
    board = services.board_named(board_key(services.place))
    moved = [name for name, each in task.boards.items() if each is board]
    updates = {name: _copies(services, board, task.updates[name]) for name in moved if name in task.updates}
    by_source = {(each.partition, each.id): each for group in updates.values() for each in group}
    uncounted = {
        name: [by_source[each.partition, each.id] for each in group] if name in updates else group
        for name, group in task.uncounted.items()
    }
    return replace(task, updates={**task.updates, **updates}, uncounted=uncounted, place=services.place)


def _copies(services: Services, board: Blackboard, updates: Sequence[Update]) -> list[Update]:
    try:
        return [_copy(services, board, each) for each in updates]
    except ServiceUnavailable as error:
        raise _lost(services.place or "", error) from error


def _copy(services: Services, board: Blackboard, update: Update) -> Update:
    """Return the copy of a pinned update as its place lists it. Raise CopyGone unless it is exactly this update.

    Stores give the same bytes different etags. So the ledger says which etag of the place belongs to which of the
    source.
    """
    place = services.place or ""
    try:
        copy = read.named(board, update.partition, update.id)
    except NoValidUpdate as error:
        raise _gone(services, update, in_short(error)) from error
    with services.ledger.read() as connection:
        recorded = place_copies.files_of(connection, place, update.partition, update.id)
    of_source = {_name(update, file.key): (file.size, file.etag) for file in update.files}
    listed = {_name(update, file.key): (file.size, file.etag) for file in copy.files}
    if recorded is None or of_source != {name: (size, etag) for name, (size, etag, _) in recorded.items()}:
        # Files of our own updates that were restored have other etags, which no change in the log says.
        raise _gone(services, update, "the source has other files than were copied")
    if listed != {name: (size, etag) for name, (size, _, etag) in recorded.items()}:
        raise _gone(services, update, "its files were changed after they were copied")
    return copy


def _name(update: Update, key: str) -> str:
    return key.removeprefix(f"{update.path}/")


def _gone(services: Services, update: Update, why: str) -> CopyGone:
    """Record that a copy is gone, and return the error that says so."""
    place = services.place or ""
    with services.ledger.write() as connection:
        place_copies.mark_gone(connection, place, update.partition, update.id)
    return CopyGone(
        f"{title_of(place)} does not have {update.path} any more ({why}). It is copied again, and the run waits for it."
    )


def _lost(place: str, error: Exception) -> DataCenterLost:
    return DataCenterLost(f"{title_of(place)} does not answer ({in_short(error)}). The run is requested again.")


@contextmanager
def watched(services: Services, task: Task) -> Generator[None]:
    """Within the block, which reads the inputs, blame the place for an error if it lost a copy or does not answer.

    The source is not damaged then, and the function is not wrong, so the run does not count as an attempt.
    """
    try:
        yield
    except TargetLost:
        raise
    except OF_ITS_OWN as error:
        if services.place is not None:
            _check_again(services, task, error)
        raise


def _check_again(services: Services, task: Task, error: BaseException) -> None:
    """Raise CopyGone or DataCenterLost if the place no longer has what the run read there."""
    board = services.board_named(board_key(services.place or ""))
    read_there: Mapping[str, Sequence[Update]] = {
        name: group for name, group in task.updates.items() if task.boards.get(name) is board
    }
    for update in [each for group in read_there.values() for each in group]:
        try:
            current = read.named(board, update.partition, update.id)
        except NoValidUpdate as gone:
            raise _gone(services, update, in_short(gone)) from error
        except ServiceUnavailable as lost:
            raise _lost(services.place or "", lost) from error
        if current.files != update.files:
            raise _gone(services, update, "its files were changed meanwhile") from error
