"""Rules for keys of objects: a key does not lead out of its blackboard, and means the same on every store."""

from feed_assets.core.errors import InvalidName
from feed_assets.feeds.local_disk import readable

_LEADS_ELSEWHERE = frozenset({"", ".", ".."})


def is_key(key: str) -> bool:
    """Return whether a key is below the blackboard, and not the blackboard itself."""
    return _LEADS_ELSEWHERE.isdisjoint(key.split("/")) and readable(key) == key


def checked(key: str) -> str:
    """Return `key` if it is below the blackboard, otherwise raise InvalidName.

    A backslash is an ordinary character, on disk and on S3: partners on Windows use it in names.
    """
    if not is_key(key):
        raise InvalidName(
            f"{key!r:.200} is not a valid key: expected segments joined by '/', none of them empty, '.' or '..', "
            "without control characters. Rename or remove it."
        )
    return key
