"""Descriptions of annotated types, and code of valid values, for messages about wrong arguments."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from enum import Enum
from inspect import isfunction
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from feed_assets.core.secrets import masked

_OURS = __name__.partition(".")[0]

_LISTS = {"tuple": ("tuple", "({},)"), "set": ("set", "{{{}}}"), "frozenset": ("frozenset", "frozenset({{{}}})")}
"""Collections for which a list is refused, with their names and forms in code. Messages must not call them lists."""


@dataclass(frozen=True)
class Example:
    """Code and words for a value of an annotated type. It is put into the metadata of `Annotated`.

    `decorator` is the name of the decorator that turns a user's function into such a value.
    """

    code: str
    words: str
    decorator: str = ""


def in_words(expected: Any) -> str:
    """Describe an annotated type for a message, without the names of modules."""
    origin, parts = get_origin(expected), get_args(expected)
    if example := _example(expected):
        return example.words
    if origin is Annotated:
        return in_words(parts[0])
    if origin is Literal:
        return _joined([repr(each) for each in parts])
    if origin in (Union, UnionType):
        return _union_in_words(parts)
    if _is(origin, Mapping):
        return f"a dict of names to {'values' if parts[1] is Any else in_words(parts[1])}"
    if _is(origin, Sequence | Set):
        return f"a {_LISTS.get(origin.__name__, ('list',))[0]} of {in_words(parts[0])}"
    return _plain(expected)


def _union_in_words(parts: Sequence[Any]) -> str:
    """Describe alternatives. If one of them is a container, None is first: `a list of int or None` could be misread."""
    alternatives = [each for each in parts if each is not NoneType]
    words = [in_words(each) for each in alternatives]
    if len(alternatives) < len(parts) and any(map(_holds_others, alternatives)):
        return f"None, or {_joined(words)}"
    return _joined([in_words(each) for each in parts])


def _holds_others(expected: Any) -> bool:
    """Return whether the description of a type ends with that of an inner type, as in `a list of int`."""
    kind = get_args(expected)[0] if get_origin(expected) is Annotated else expected
    return _example(expected) is None and isinstance(get_origin(kind), type)


def _plain(expected: Any) -> str:
    """Describe a type that is not a container."""
    if get_origin(expected) is Callable:
        takes, gives = get_args(expected)
        return (
            f"a function from {', '.join(map(in_words, takes))} to {in_words(gives)}" if takes != ... else "a function"
        )
    if isinstance(expected, type):
        return "None" if expected is NoneType else expected.__name__
    return re.sub(r"\b(?:\w+\.)+(?=\w)", "", str(expected))


def cure(name: str, argument: Any, wrong: Any, expected: Any) -> str:
    """Return advice on how to write an argument. `argument` is, or contains, the value `wrong`.

    Return an empty text if the rest of the message already shows what to write.
    """
    if isinstance(wrong, type):  # The rest of the message already says that the class must be called.
        return ""
    if decorator := lacking_decorator(wrong, expected):
        return f" Put @{decorator}(…) above {wrong.__name__}."
    if isinstance(wrong, str) and (near := _nearest(wrong, expected)):
        return f" Write {name}={near!r}."
    parts = get_args(expected) if get_origin(expected) in (Union, UnionType) else ()
    like_it = [each for each in parts if isinstance(get_origin(each), type) and isinstance(argument, get_origin(each))]
    code = _code(like_it[0] if like_it else expected, wrong)
    return f" Write {name}={code}." if code else ""


def lacking_decorator(wrong: Any, expected: Any) -> str:
    """Return the decorator that a user's function lacks. Return an empty text if `wrong` is not a user's function."""
    is_users = isfunction(wrong) and wrong.__module__.partition(".")[0] != _OURS
    return next((each.decorator for each in _examples(expected) if each.decorator), "") if is_users else ""


def _examples(expected: Any) -> Iterator[Example]:
    """Yield the examples in a type and in its inner types."""
    if example := _example(expected):
        yield example
    for part in get_args(expected):
        yield from _examples(part)


def _nearest(wrong: str, expected: Any) -> str | None:
    """Return the choice of a Literal that is closest to a text."""
    choices = {each.casefold(): each for each in _choices(expected) if isinstance(each, str)}
    near = get_close_matches(wrong.casefold(), choices, 1)
    return choices[near[0]] if near else None


def _code(expected: Any, wrong: Any) -> str:
    """Return the code of a valid value. Return an empty text for plain types, which need no example."""
    origin, parts = get_origin(expected), get_args(expected)
    if example := _example(expected):
        return example.code
    if origin is Annotated:
        return _code(parts[0], wrong)
    if origin in (Union, UnionType):
        return next((code for each in parts if (code := _code(each, wrong))), "")
    if _is(origin, Mapping):
        code = _code(parts[1], wrong) or ("'value'" if parts[1] in (str, Any) else "")
        return f"{{{(code if code.isidentifier() else 'name')!r}: {code}}}" if code else ""
    if _is(origin, Sequence | Set):
        code = _code(parts[0], wrong) or (_texts_in(wrong) if _is_text(parts[0]) else "")
        return _LISTS.get(origin.__name__, ("", "[{}]"))[1].format(code) if code else ""
    return _code_of_class(expected) if isinstance(expected, type) else ""


def _code_of_class(expected: type) -> str:
    if expected is timedelta:
        return "timedelta(hours=1)"
    if issubclass(expected, Enum):
        return f"{expected.__name__}.{next(iter(expected)).name}"
    is_ours = expected.__module__.partition(".")[0] == _OURS
    return f"{expected.__name__}(…)" if is_ours else ""


def _texts_in(wrong: Any) -> str:
    """Return a text, or the texts of a collection, as code. Return an empty text if it holds other values."""
    texts: list[Any] = [wrong] if isinstance(wrong, str) else [*wrong] if isinstance(wrong, list | tuple | Set) else []
    return ", ".join(masked(repr(each)) for each in texts) if all(isinstance(each, str) for each in texts) else ""


def _is_text(expected: Any) -> bool:
    return expected is str or (get_origin(expected) is Annotated and get_args(expected)[0] is str)


def _example(expected: Any) -> Example | None:
    metadata = get_args(expected)[1:] if get_origin(expected) is Annotated else ()
    return next((each for each in metadata if isinstance(each, Example)), None)


def _choices(expected: Any) -> Iterator[Any]:
    if get_origin(expected) is Literal:
        yield from get_args(expected)
    elif get_origin(expected) in (Union, UnionType, Annotated):
        for each in get_args(expected):
            yield from _choices(each)


def _is(origin: Any, kind: Any) -> bool:
    return isinstance(origin, type) and issubclass(origin, kind)


def _joined(words: list[str]) -> str:
    return " or ".join(part for part in (", ".join(words[:-1]), words[-1]) if part)
