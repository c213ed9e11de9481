"""Public names of the reference, from signatures and docstrings."""

import dataclasses
import enum
import inspect
import re
from typing import Any

from reference_text import item, paragraphs

import feed_assets
from feed_assets import checks, testing

_SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Yields):\n", re.MULTILINE)
_NAMED = re.compile(r"^(\*{0,2}[\w., *]+): (.*)$", re.DOTALL)
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def public() -> str:
    """Return a section for each name of `feed_assets`, but for components, which have a page of their own."""
    names = [name for name in feed_assets.__all__ if not name.endswith("Component") and name != "checks"]
    return "\n\n".join(section(name, getattr(feed_assets, name)) for name in names)


def factories() -> str:
    """Return a section for each function of `feed_assets.checks` that makes a check, and for `Check`."""
    made = [name for name, each in inspect.getmembers(checks, inspect.isfunction) if _makes_check(name, each)]
    return "\n\n".join(section(f"checks.{name}", getattr(checks, name)) for name in ["Check", *made])


def _makes_check(name: str, function: Any) -> bool:
    return not name.startswith("_") and inspect.signature(function).return_annotation is checks.Check


def for_tests() -> str:
    """Return a section for each name of `feed_assets.testing`, with its public methods."""
    parts = []
    for name in testing.__all__:
        thing = getattr(testing, name)
        parts.append(section(name, thing))
        if inspect.isclass(thing):
            parts += [section(f"{name}.{method}", each, level=3) for method, each in _methods(thing)]
    return "\n\n".join(parts)


def _methods(thing: type) -> list[tuple[str, Any]]:
    methods = [(name, each) for name, each in vars(thing).items() if inspect.isfunction(each) and each.__doc__]
    return [(name, each) for name, each in methods if not name.startswith("_")]


def section(name: str, thing: Any, *, level: int = 2) -> str:
    """Return heading, signature and docstring of a public name."""
    parts = ["#" * level + f" `{name}`", f"```text\n{_signature(name, thing)}\n```", docstring(thing)]
    return "\n\n".join(part for part in parts if part)


def _signature(name: str, thing: Any) -> str:
    if inspect.isclass(thing) and issubclass(thing, enum.Enum):
        return "\n".join(f"{name}.{each.name} = {each.value!r}" for each in thing)
    if not callable(thing):
        return f"{name} = {thing!r}"
    if name == "Settings":
        return "Settings()"
    return _in_lines(name, inspect.signature(thing))


def _in_lines(name: str, signature: inspect.Signature) -> str:
    """Return a call in one line, or with a line for each parameter if that is too long."""
    parameters, shown, is_keyword = [*signature.parameters.values()], list[str](), False
    for each in parameters:
        if each.name == "self":
            continue
        if each.kind is each.VAR_POSITIONAL:
            is_keyword = True
        if each.kind is each.KEYWORD_ONLY and not is_keyword:
            shown.append("*")
            is_keyword = True
        shown.append(_parameter(each))
    one = f"{name}({', '.join(shown)})"
    return one if len(one) <= 100 else "\n".join([f"{name}(", *(f"    {each}," for each in shown), ")"])


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    if parameter.default is parameter.empty:
        return stars + parameter.name
    default = parameter.default
    text = "…" if type(default).__name__ == "_HAS_DEFAULT_FACTORY_CLASS" else _ADDRESS.sub("", repr(default))
    if inspect.isfunction(default) or inspect.isclass(default):
        text = default.__name__
    return f"{stars}{parameter.name}={text if len(text) <= 60 else '…'}"


def docstring(thing: Any) -> str:
    """Return a docstring in Google form as Markdown: its sections become lists."""
    own = vars(type(thing)).get("__doc__") if not (inspect.isclass(thing) or inspect.isroutine(thing)) else None
    text = inspect.getdoc(thing) or ""
    if own is not None or (dataclasses.is_dataclass(thing) and text.startswith(f"{getattr(thing, '__name__', '')}(")):
        text = ""
    before, *parts = _SECTION.split(text)
    blocks = [paragraphs(before)]
    for title, body in zip(parts[::2], parts[1::2], strict=True):
        blocks.append(f"**{title}**\n\n{_body(title, body)}")
    return "\n\n".join(block for block in blocks if block)


def arguments(thing: Any) -> dict[str, str]:
    """Return what the docstring of a class says of each argument, after a colon."""
    listed = _SECTION.split(inspect.getdoc(thing) or "")
    bodies = [body for title, body in zip(listed[1::2], listed[2::2], strict=True) if title == "Args"]
    entries = [entry for body in bodies for entry in _entries(inspect.cleandoc(" \n" + body).strip("\n"))[0]]
    return {match[1]: f": {match[2]}" for each in entries if (match := _NAMED.match(each))}


def _body(title: str, body: str) -> str:
    entries, rest = _entries(inspect.cleandoc(" \n" + body).strip("\n"))
    if title in {"Returns", "Yields"}:
        return paragraphs("\n".join(entries) + rest)
    rows = [item(f"`{match[1]}`: {match[2]}" if (match := _NAMED.match(each)) else each) for each in entries]
    return "\n".join(rows) + (f"\n\n{paragraphs(rest)}" if rest else "")


def _entries(text: str) -> tuple[list[str], str]:
    """Return the entries of a section, each with its indented lines, and the text below the section."""
    listed, _, rest = text.partition("\n\n")
    entries = list[str]()
    for line in listed.splitlines():
        if line.startswith(" ") and entries:
            entries[-1] += f" {line.strip()}"
        else:
            entries.append(line)
    return entries, rest
