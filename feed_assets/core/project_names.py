"""Rules for the name of a user's project, which names its Python package and its feeds."""

import re
from keyword import iskeyword

from feed_assets.core.errors import InvalidName

NAME_LENGTH = 50
"""Maximum number of characters of a project's name.

The length is limited, because the name of each feed contains the project's name.
"""

_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_NOT_ALLOWED = re.compile(r"[^a-z0-9]+")


def check_project_name(name: str, reserved: frozenset[str]) -> str:
    """Return `name` if a project may have it, otherwise raise InvalidName. Names in `reserved` are not allowed."""
    if not _NAME.fullmatch(name) or len(name) > NAME_LENGTH:
        raise InvalidName(
            f"{name!r} is no name for a project: expected the name of a Python package, up to {NAME_LENGTH} of a-z, "
            f"0-9 and single '_' between them, a letter first.{_proposal(name)}"
        )
    if iskeyword(name) or name in reserved:
        raise InvalidName(
            f"{name!r} is no name for a project: it is {_whose(name)}. Choose another, such as {f'{name}_data'!r}."
        )
    return name


def _whose(name: str) -> str:
    return "a word of Python's own" if iskeyword(name) else "the name of a folder that every project has"


def _proposal(name: str) -> str:
    near = _NOT_ALLOWED.sub("_", name.lower()).strip("_0123456789")[:NAME_LENGTH].strip("_")
    return f" Take {near!r}, for example." if _NAME.fullmatch(near) else " Choose another."
