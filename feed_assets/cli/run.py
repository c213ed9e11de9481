"""`feed-assets run`: the sensors, the conditions and the runs that they request, in this process."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from feed_assets.cli.location import Module, load, open_instance
from feed_assets.cli.stopping import stopping
from feed_assets.core.errors import ServiceUnavailable
from feed_assets.core.words import first_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import dagster as dg

    from feed_assets.core.feeds import Partition
    from feed_assets.orchestration.ends import Ended


NAMED = 5
"""Partitions of a kind that the end of a run names; of the others it says how many there are."""

NOT_BUILT, FOR_A_PERSON = 1, 3
"""Exit codes. docs/operations.md has the table of all."""


def run(
    module: Module = None,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="Until nothing is requested any more.")] = False,
) -> None:
    """Evaluate all sensors and conditions and run what they request: once, or until nothing is left to do.

    Exit code 1 if a run failed and is tried again later, if something is ready that could not be built, or a feed or an
    event source could not be read; 3 if partitions wait for a person; 4 if a service is not there.
    """
    from feed_assets.core.readiness import State
    from feed_assets.orchestration.runner import Runner

    failed: list[dg.ExecuteInProcessResult] = []
    left: dict[Partition, str] = {}

    def show(result: "dg.ExecuteInProcessResult") -> None:
        say(result, check)
        if not result.success:
            failed.append(result)

    definitions = load(module)
    with stopping() as check, open_instance() as instance:
        runner = Runner(definitions, instance, show)
        if until_idle:
            ticks = runner.run_until_idle()
            left = runner.in_vain()
            _list("LEFT", left, "it is ready, and its runs came to nothing")
            typer.echo(f"stopped after {ticks} ticks: {_not_built(len(left))}" if left else f"idle after {ticks} ticks")
        else:
            more = "more may be ready now" if runner.run_once() else "nothing was to be done"
            typer.echo(f"one tick: {more}")
        failing, again = runner.failing(), runner.waiting(State.WAITS_FOR_ANOTHER_ATTEMPT)
        waiting = runner.waiting(State.WAITS_FOR_A_PERSON) | runner.refused()
    _list("FAILING", failing)
    _list("AGAIN", again)
    _say_who_waits(waiting)
    raise typer.Exit(FOR_A_PERSON if waiting else NOT_BUILT if failed or left or failing or again else 0)


def _say_who_waits(waiting: "Mapping[Partition, str]") -> None:
    if waiting:
        typer.echo(f"{len(waiting)} wait{'s' * (len(waiting) == 1)} for a person:")
        _list("WAITS", waiting)
        typer.echo("See `feed-assets explain`. Mend the cause, or `feed-assets build --failed --refused`.")


def _list(word: str, found: "Mapping[Any, str]", what: str = "") -> None:
    """A line for each of a few partitions, with its reason."""
    for whose, why in [*found.items()][:NAMED]:
        typer.echo(f"{word:7} {whose}: {f'{what}: ' * bool(what)}{first_line(why)}")
    if len(found) > NAMED:
        typer.echo(f"{word:7} and {len(found) - NAMED} more")


def _not_built(count: int) -> str:
    return f"{count} partition{'s' * (count > 1)} ready and not built; mend the cause, then run it again"


def say(result: "dg.ExecuteInProcessResult", check: "Callable[[], None]") -> None:
    """Say how a run ended. Raises ServiceUnavailable for what every run needs, and what `check` raises."""
    from feed_assets.orchestration.ends import ends_of, outage

    check()
    why = outage(result)  # It is said once, and not again by every run that is due.
    for each in ends_of(result):
        if not (why and each.is_by_outage):
            typer.echo(sentence(each, result.run_id))
    if why:
        raise ServiceUnavailable(why)


def sentence(ended: "Ended", run_id: str) -> str:
    """How a run ended with a partition, in words: what it made, and why it failed if it did."""
    what = f"{', '.join(ended.assets)} {ended.partition or ''}".rstrip()
    if ended.succeeded:
        return f"built   {what}"
    why = ended.error or "it was stopped before its first step"
    return f"FAILED  {what}: {first_line(why)} (run {run_id})"
