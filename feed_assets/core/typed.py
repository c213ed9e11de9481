"""Checks of users' declarations against annotated types. A wrong value is reported at once, in one line.

Annotations may have rules (`core.argument_types`). The message begins with the file and line of the declaration.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache, wraps
from inspect import Parameter, Signature, isfunction, signature
from types import GenericAlias
from typing import Any, TypeVar, cast, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from feed_assets.core.errors import FeedAssetsError, InvalidDefinition, InvalidSetting
from feed_assets.core.examples import cure, in_words, lacking_decorator
from feed_assets.core.secrets import masked
from feed_assets.core.source_lines import declared_at

LENGTH = 90
"""Maximum number of characters that a message shows of a wrong value."""

_OBJECT = re.compile(r"<(?:\w+\.)*(\w+) object at 0x[0-9a-f]+>")
"""Python's default text of an object. A message shows only the class in it."""

_D = TypeVar("_D", bound=Callable[..., Any])


def typed(declaration: _D) -> _D:
    """Make a function or dataclass raise InvalidDefinition for values that do not match their annotations.

    Values are never converted. Unknown arguments are refused.
    """
    return typed_with({})(declaration)


def typed_with(instead: Mapping[str, str]) -> Callable[[_D], _D]:
    """Return a variant of `typed`. `instead` has hints, by name, for arguments that do not exist but that users try."""

    def decorate(declaration: _D) -> _D:
        if isinstance(declaration, type):
            declared = cast(Any, declaration)
            declared.__init__ = _checking(declared.__init__, declared.__name__, instead)
            return declared
        return cast(_D, _checking(declaration, declaration.__name__, instead))

    return decorate


def _checking(function: Callable[..., Any], owner: str, instead: Mapping[str, str]) -> Callable[..., Any]:
    declared = signature(function)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            arguments = declared.bind(*args, **kwargs).arguments
        except TypeError:  # The call below raises Python's own error for too many arguments.
            arguments = {}
        try:
            _refuse_no_call(owner, declared, args, kwargs)
            _refuse_unknown(owner, declared, args, kwargs, instead)
            _refuse_missing(owner, declared, args, kwargs)
            _check(owner, declared, _hints(function), arguments)
            return function(*args, **kwargs)
        except InvalidSetting:  # The environment must be fixed, not the declaration.
            raise
        except FeedAssetsError as error:
            error.place = error.place or declared_at()
            raise

    return call


def _refuse_no_call(owner: str, declared: Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Raise InvalidDefinition for a decorator without parentheses."""
    if len(args) == 1 and not kwargs and isfunction(args[0]) and len(_required(declared)) > 1:
        raise InvalidDefinition(
            f"@{owner} stands above {args[0].__name__}() without parentheses: expected @{owner}"
            f"({', '.join(_required(declared))}). Add the parentheses."
        )


def _refuse_missing(owner: str, declared: Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    try:
        bound = declared.bind_partial(*args, **kwargs).arguments
    except TypeError:
        return
    if missing := [name for name in _required(declared) if name not in bound]:
        first = next((masked(repr(value)) for value in args if isinstance(value, str)), "")
        raise InvalidDefinition(
            f"{owner}({first}): found no {' and no '.join(missing)}: expected "
            f"{owner}({', '.join(_required(declared))}). Add {'it' if len(missing) == 1 else 'them'}."
        )


def _required(declared: Signature) -> list[str]:
    """Return the parameters without a default, except `self`."""
    several = Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD
    named = [each for each in declared.parameters.values() if each.default is Parameter.empty]
    return [each.name for each in named if each.kind not in several and each.name != "self"]


def _refuse_unknown(
    owner: str, declared: Signature, args: Iterable[Any], kwargs: Mapping[str, Any], instead: Mapping[str, str]
) -> None:
    first = next((masked(repr(value)) for value in args if isinstance(value, str)), "")
    for name in (name for name in kwargs if name not in declared.parameters):
        near = get_close_matches(name, declared.parameters, 1)
        if name in instead:
            raise InvalidDefinition(f"{owner}({first}): there is no parameter {name}: {instead[name]}")
        meant = f"is {near[0]} meant?" if near else f"expected {', '.join(list(declared.parameters)[1:])}."
        raise InvalidDefinition(f"{owner}({first}): there is no parameter {name}: {meant}")


@cache
def _hints(function: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the type annotations of a function's arguments, with the rules that they contain.

    Call this late: an annotation may use a name that is defined after the function.
    """
    return get_type_hints(function, include_extras=True)


def _check(owner: str, declared: Signature, hints: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    for name in [name for name in arguments if name in hints]:
        several = declared.parameters[name].kind is Parameter.VAR_POSITIONAL
        expected = GenericAlias(tuple, (hints[name], ...)) if several else hints[name]
        try:
            _adapter(expected).validate_python((arguments[name],), strict=True)
        except ValidationError as error:
            wrong = _most_telling(error)
            where = name + "".join(f"[{step!r}]" for step in steps_in(arguments[name], wrong["loc"][1:]))
            rule, value = wrong.get("ctx", {}).get("error"), wrong["input"]
            bare = lacking_decorator(value, expected)
            value_text = f"the function {value.__name__}" if bare else value_in_words(value)
            raise InvalidDefinition(
                f"{owner}({_first(arguments, name)}): {where} is {value_text}, "
                f"expected {rule or in_words(hints[name])}."
                f"{'' if rule or several else cure(name, arguments[name], value, expected)}"
            ) from None


def _most_telling(error: ValidationError) -> ErrorDetails:
    """Return the first error of a rule, because it is more exact than an error of a type.

    If no rule failed, return the first error.
    """
    errors = error.errors(include_url=False)
    return next((each for each in errors if each["type"] == "value_error"), errors[0])


def _first(arguments: Mapping[str, Any], wrong: str) -> str:
    """Return the first argument if it is a text. It is usually the name of what is declared."""
    name, value = next(iter(arguments.items()))
    return masked(repr(value)) if isinstance(value, str) and name != wrong else ""


@cache
def _adapter(expected: Any) -> TypeAdapter[Any]:
    """Return an adapter of a one-element tuple, because pydantic takes no configuration for a single dataclass."""
    return TypeAdapter(
        cast(type[Any], GenericAlias(tuple, (expected,))), config=ConfigDict(arbitrary_types_allowed=True)
    )


def steps_in(value: Any, steps: Iterable[int | str]) -> Iterator[int | str]:
    """Yield the keys and indexes that lead to a part of a value, without pydantic's names of union members."""
    for step in steps:
        holds = isinstance(value, Mapping) or (isinstance(step, int) and isinstance(value, Sequence))
        if not holds:  # Dagster's keys and specs raise an error of their own when they are indexed.
            continue
        try:
            value = cast(Any, value)[step]
        except LookupError:
            continue
        yield step


def expected_of(error: ErrorDetails) -> str:
    """Return what pydantic or a rule expected."""
    message = error["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    return message.removeprefix("expected ")


def value_in_words(value: Any) -> str:
    """Describe a value in one short line, without passwords."""
    if isfunction(value):
        return f"the function {value.__name__}, which was not called (write {value.__name__}(…))"
    if isinstance(value, type):
        return f"the class {value.__name__}, which was not called (write {value.__name__}(…))"
    text = _OBJECT.sub(r"\1", masked(" ".join(repr(value).split())))
    return f"{text[:LENGTH]}{'…' if len(text) > LENGTH else ''} ({type(value).__name__})"
