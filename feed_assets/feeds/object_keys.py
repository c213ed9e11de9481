"""Rules for keys of objects: a key stays below its blackboard, and is the same object on every store."""

from feed_assets.core.errors import InvalidName
from feed_assets.feeds.local_disk import readable

_LEADS_ELSEWHERE = frozenset({"", ".", ".."})


def is_key(key: str) -> bool:
    """Return whether a key stays below the blackboard and is not all of it."""
    return _LEADS_ELSEWHERE.isdisjoint(key.split("/")) and readable(key) == key


def checked(key: str) -> str:
    """Return `key` if it stays below the blackboard and is not all of it, else raise InvalidName.

    A backslash is a letter like others, on disk as on S3: partners on Windows have it in names.
    """
    if not is_key(key):
        raise InvalidName(
            f"{key!r:.200} is no key: expected segments joined by '/', none of them empty, '.' or '..', without "
            "control characters. Rename or remove it."
        )
    return key
