"""Blackboards of others as their owners have them, who may write there."""

from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.stores import s3_credentials
from feed_assets.settings import Settings


def open_as_owner(settings: Settings, name: str) -> Blackboard:
    """Open the blackboard that the settings call `name`, without that name."""
    place = settings.place(name)
    credentials = s3_credentials(place.url, place.profile)
    return Blackboard.open(place.url, endpoint=place.endpoint, credentials=credentials)
