"""YAML components of the reference, from their pydantic models: fields, types and defaults."""

import dataclasses
import inspect
import re
import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined
from reference_python import arguments, docstring
from reference_text import item

import feed_assets

_PLAIN = {str: "text", int: "whole number", float: "number", bool: "true or false", Any: "any value"}


def components() -> str:
    """Return a section for each component, and one for each mapping that its fields take."""
    names = [name for name in feed_assets.__all__ if name.endswith("Component")]
    return "\n\n".join(_section(getattr(feed_assets, name)) for name in names)


def _section(component: type[BaseModel]) -> str:
    about = docstring(component).partition("**Args**")[0].strip()
    parts = [f"## `{component.__name__}`", about, _fields(component)]
    parts += [f"### {_heading(component, each)}\n\n{_fields(each)}" for each in _below(component)]
    return "\n\n".join(parts)


def _heading(component: type[BaseModel], model: type[BaseModel]) -> str:
    return f"`{model.__name__}` of `{component.__name__}`"


def _below(model: type[BaseModel]) -> list[type[BaseModel]]:
    """Return the models that the fields of a model name, those of their fields too, each once."""
    below = list[type[BaseModel]]()
    left = [model]
    while left:
        for field in left.pop(0).model_fields.values():
            for each in _models(field.annotation):
                if each not in below:
                    below.append(each)
                    left.append(each)
    return below


def _models(annotation: Any) -> list[type[BaseModel]]:
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for each in get_args(annotation) for model in _models(each)]


def _fields(model: type[BaseModel]) -> str:
    about = arguments(model)
    return "\n".join(item(_field(name, each) + about.get(name, "")) for name, each in model.model_fields.items())


def _field(name: str, field: Any) -> str:
    name = field.alias or name
    if field.is_required():
        default = "required"
    elif field.default in (None, PydanticUndefined):
        default = "optional"
    else:
        default = f"by default `{field.default}`"
    return f"`{name}` ({_words(field.annotation)}; {default})"


def _words(annotation: Any) -> str:
    """Return a type in words."""
    origin, within = get_origin(annotation), [each for each in get_args(annotation) if each is not type(None)]
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    if origin is Literal:
        return " or ".join(f"`{each}`" for each in within)
    if origin in (Union, types.UnionType):
        return ", or ".join(dict.fromkeys(_words(each) for each in within))
    if origin in (list, tuple, set, frozenset):
        return f"list of {_words(within[0])}"
    if origin in (dict, Mapping):
        return f"mapping of names to {_words(within[1])}"
    if dataclasses.is_dataclass(annotation):
        return f"mapping of the arguments of [`{annotation.__name__}`](python.md#{annotation.__name__.lower()})"
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return f"mapping, see `{annotation.__name__}` below"
    return f"`{re.sub(r'.*[.]', '', getattr(annotation, '__name__', str(annotation)))}`"
