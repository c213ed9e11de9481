"""The mark of a place: an object that shows whose place a blackboard is.

An address proves little: a bucket has several endpoints, a folder several mounts. A disk that is not mounted is an
empty folder. The mark is put before the first copy, and looked at before each process copies.
"""

from uuid import uuid4

import sqlalchemy as sa

from feed_assets.core.errors import BlackboardMissing, InvalidSetting
from feed_assets.ledger.database import Ledger
from feed_assets.ledger.tables import replica
from feed_assets.replication import replicas
from feed_assets.replication.places import Place
from feed_assets.runs.services import Services

MARK = "_feed_assets/data_center"
"""Key of the mark: the place's name, a random word, and the url of the source, by which another project is noticed."""

_LIMIT = 2000
"""Most bytes of a mark."""


def check_place(services: Services, place: Place, *, is_new: bool = False) -> None:
    """Check that a blackboard is the place's own, and put its mark there if it has none.

    Unless `is_new`, raise BlackboardMissing if it is empty, and the ledger has copies there: its disk may be missing.
    Raise InvalidSetting if it is the source, or another place.
    """
    mark = mark_of(place)
    if mark is None:
        if not is_new and _has_copies(services.ledger, place.name) and _is_empty(place):
            raise BlackboardMissing(
                f"the data center {place.name} is empty, and {place.board.title} had copies: mount its disk, or "
                "correct its url. If the disk is new, copy everything again by "
                f"`feed-assets replicate repair {place.name}`."
            )
        own = f"{place.name} {uuid4().hex} {_source(services)}".encode()
        mark = own if place.board.create(MARK, own) else mark_of(place)
    check_mark(services, place, mark)


def check_mark(services: Services, place: Place, mark: bytes | None) -> None:
    """Raise InvalidSetting if a mark is that of another place or project, or also at the source, which is the place."""
    if mark is None:
        return
    name, _, source = [*mark.decode(errors="replace").split(" ", 2), "", ""][:3]
    if name != place.name:
        raise InvalidSetting(
            f"the data center {place.name!r} in FEED_ASSETS_DATA_CENTERS has the blackboard of {name!r}: expected one "
            f"of its own. Correct its url. If {name!r} was renamed, forget it, and remove {MARK} from "
            f"{place.board.title}."
        )
    if source and source != _source(services):
        raise InvalidSetting(
            f"the data center {place.name!r} in FEED_ASSETS_DATA_CENTERS has the blackboard of another project, whose "
            f"own blackboard is {source}: expected one that no other project copies to. Correct its url. If our own "
            f"blackboard was moved from there, remove {MARK} from {place.board.title}."
        )
    if own := next((board for board in services.boards() if board.get(MARK, _LIMIT) == mark), None):
        raise InvalidSetting(
            f"the data center {place.name!r} in FEED_ASSETS_DATA_CENTERS has our own blackboard "
            f"{own.title}, under another address: expected another one. Correct its url or endpoint."
        )


def _source(services: Services) -> str:
    """Return the url of the default blackboard: a ledger that was rebuilt has the same one, another project has not."""
    return services.boards()[0].url.rstrip("/")


def mark_of(place: Place) -> bytes | None:
    """Return the mark of a place. Return None if it has none yet."""
    return place.board.get(MARK, _LIMIT)


def _has_copies(ledger: Ledger, name: str) -> bool:
    published = (replica.c.place == name) & (replica.c.state == replicas.PUBLISHED)
    with ledger.read() as connection:
        return bool(connection.scalar(sa.select(sa.exists().where(published))))


def _is_empty(place: Place) -> bool:
    return not {*place.board.names("")} - {"_feed_assets"}
