"""Commands of the reference, from Typer: summaries, usage, arguments and options."""

from collections.abc import Iterator
from typing import Any

from reference_text import anchor, filled, first_sentence, item, paragraphs
from typer._click.core import Context
from typer.main import get_command

from feed_assets.cli import app

_COMMON = {"--module", "--verbose", "--json"}


def commands() -> dict[str, Any]:
    """Return each command by its words, such as `feed-assets feed ls`."""
    return dict(_below(get_command(app), "feed-assets"))


def _below(command: Any, words: str) -> Iterator[tuple[str, Any]]:
    below = getattr(command, "commands", None)
    if not command.hidden and (below is None or command.invoke_without_command) and words != "feed-assets":
        yield words, command
    for word, each in (below or {}).items():
        yield from _below(each, f"{words} {word}")


def index() -> str:
    """Return the list of all commands with a sentence about each, and who takes which common option."""
    lines = [item(f"[`{words}`](#{anchor(words)}): {first_sentence(each.help)}") for words, each in commands().items()]
    return "\n".join(lines)


def details() -> str:
    """Return a section for each command."""
    return "\n\n".join(_section(words, command) for words, command in commands().items())


def _section(words: str, command: Any) -> str:
    context = Context(command, info_name=words)
    usage = command.get_usage(context).removeprefix("Usage: ")
    rows = [item(_row(each, context)) for each in command.params if each.get_help_record(context)]
    parts = [f"## {words}", paragraphs(command.help), f"```text\n{' '.join(usage.split())}\n```", "\n".join(rows)]
    return "\n\n".join(part for part in parts if part)


def _row(parameter: Any, context: Context) -> str:
    name, text = parameter.get_help_record(context)
    return filled(f"`{name}`: {text}")
