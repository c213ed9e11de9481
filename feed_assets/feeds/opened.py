"""Opening of the blackboards in the settings."""

from feed_assets.core.setting_types import BlackboardLocation
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.stores import PATIENCE, RequestLimits, s3_credentials
from feed_assets.settings import Settings, make_board


def open_board(settings: Settings, *, name: str | None = None, makes: bool = True) -> Blackboard:
    """Open the blackboard of the settings, or the blackboard `name`, which is read-only unless it is ours.

    The default folder is created on first use, except for readers (`makes=False`).
    """
    if makes and name is None:
        make_board(settings)
    place = settings.place(name)
    return _open(place, "" if place.writable else name or "")


def open_center(settings: Settings, name: str, patience: RequestLimits = PATIENCE) -> Blackboard:
    """Open the blackboard of a data center. Raise InvalidSetting if the settings do not have it."""
    return _open(settings.data_center(name).location, "", patience)


def open_as_owner(settings: Settings, name: str) -> Blackboard:
    """Open a foreign blackboard for writing, as its owner would. Only the demo and tests call this."""
    return _open(settings.place(name), "")


def _open(place: BlackboardLocation, name: str, patience: RequestLimits = PATIENCE) -> Blackboard:
    credentials = s3_credentials(place.url, place.profile) if place.profile and place.url.startswith("s3:") else None
    return Blackboard.open(place.url, endpoint=place.endpoint, credentials=credentials, patience=patience, name=name)


def board_at(settings: Settings, url: str | None, *, makes: bool = False) -> Blackboard:
    """Open a blackboard by URL, or by name in the settings. None means the default blackboard.

    `makes` creates the folder of the default blackboard if it is missing. URLs on S3 use the endpoint of the settings.
    Raise InvalidSetting, InvalidName or BlackboardError.
    """
    if url is None:
        return open_board(settings, makes=makes)
    if name := name_in(url):
        return open_board(settings, name=name)
    return Blackboard.open(url, endpoint=settings.s3_endpoint)


def name_in(blackboard: str | None) -> str | None:
    """Return a blackboard's name. Return None for a URL, which always has a colon."""
    return blackboard if blackboard and ":" not in blackboard else None
