"""Errors in a component's attributes, in the words of Python's declarations. Dagster adds the line of the YAML file."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, InitErrorDetails

from feed_assets.core.typed import expected_of, steps_in, value_in_words
from feed_assets.orchestration.declare.presentation import INSTEAD

_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
_MISSING = ("missing", "missing_argument", "missing_keyword_only_argument")

Steps = tuple[int | str, ...]


def in_our_words(error: ValidationError, attributes: object, model: type[BaseModel]) -> ValidationError:
    """Return one error of the type `value_error` per wrong key.

    Dagster builds the errors again, and then errors of other types would lose our texts. If a value may have one of
    several types, the error names what each type expects. If one of these types finds an error deeper inside the value,
    only that error is returned.
    """
    mistakes = [(_steps(each, attributes), each) for each in error.errors(include_url=False)]
    at = {where: [each for steps, each in mistakes if steps == where] for where, _ in mistakes}
    meant = [where for where in at if not any(where == other[: len(where)] for other in at if other != where)]
    return ValidationError.from_exception_data(model.__name__, [_mistake(at[where], where, model) for where in meant])


def _steps(error: ErrorDetails, attributes: object) -> Steps:
    """Return the place of an error in the attributes, without pydantic's names of union members."""
    if error["type"] in _MISSING:
        return (*steps_in(attributes, error["loc"][:-1]), error["loc"][-1])
    return tuple(steps_in(attributes, error["loc"]))


def _mistake(errors: Sequence[ErrorDetails], where: Steps, model: type[BaseModel]) -> InitErrorDetails:
    first = errors[0]
    problem = ValueError(_message(first, [expected_of(each) for each in errors], where, model))
    return InitErrorDetails(type="value_error", loc=where, input=first["input"], ctx={"error": problem})


def _message(error: ErrorDetails, expected: Sequence[str], where: Steps, model: type[BaseModel]) -> str:
    if error["type"] in _MISSING:
        return "it is missing"
    if error["type"] in _UNKNOWN:
        if instead := INSTEAD.get(str(where[-1])):
            return f"there is no such key: {instead}"
        near = get_close_matches(str(where[-1]), _keys(model), 1)
        return f"there is no such key{f': is {near[0]} meant?' if near else ''}"
    if not where:  # the error is about the attributes as a whole
        return expected[0]
    return f"it is {value_in_words(error['input'])}, expected {' or '.join(dict.fromkeys(expected))}"


def _keys(model: type[BaseModel]) -> list[str]:
    """Return all keys that attributes may have, at any depth."""
    schema: dict[str, Any] = model.model_json_schema()
    return [name for each in (schema, *schema.get("$defs", {}).values()) for name in each.get("properties", {})]
