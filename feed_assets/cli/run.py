"""`feed-assets run`: the sensors, the conditions and the runs that they request, in this process."""

from typing import TYPE_CHECKING, Annotated

import typer

from feed_assets.cli.location import Module, load, open_instance
from feed_assets.cli.stopping import stopping
from feed_assets.core.errors import ServiceUnavailable

if TYPE_CHECKING:
    import dagster as dg

    from feed_assets.core.feeds import Partition


def run(
    module: Module = None,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="Until nothing is requested any more.")] = False,
) -> None:
    """Evaluate all sensors and conditions and run what they request: once, or until nothing is left to do.

    Exit code 1 if a run failed, or if in the end something is ready that could not be built, or a feed or an event
    source could not be read.
    """
    from feed_assets.orchestration.runner import Runner, outage

    failed: list[dg.ExecuteInProcessResult] = []
    left: dict[Partition, str] = {}

    def show(result: "dg.ExecuteInProcessResult") -> None:
        check()
        if why := outage(result):
            raise ServiceUnavailable(why)  # It is said once, and not again by every run that is due.
        typer.echo(sentence(result))
        if not result.success:
            failed.append(result)

    definitions = load(module)
    with stopping() as check, open_instance() as instance:
        runner = Runner(definitions, instance, show)
        if until_idle:
            ticks = runner.run_until_idle()
            left = runner.in_vain()
            for output, why in left.items():
                typer.echo(f"LEFT    {output}: it is ready, and its runs came to nothing: {why.splitlines()[0]}")
            typer.echo(f"stopped after {ticks} ticks: {_not_built(len(left))}" if left else f"idle after {ticks} ticks")
        else:
            typer.echo(f"one tick: {runner.run_once()} runs and events")
        failing = runner.failing()
        for whom, why in failing.items():
            typer.echo(f"FAILING {whom}: {why.splitlines()[0]}")
    raise typer.Exit(1 if failed or left or failing else 0)


def _not_built(count: int) -> str:
    return f"{count} partition{'s' * (count > 1)} ready and not built; mend the cause, then run it again"


def sentence(result: "dg.ExecuteInProcessResult") -> str:
    """How a run ended, in words: what it made, and why it failed if it did."""
    from feed_assets.orchestration.runner import why_failed

    made = sorted(key.to_user_string() for key in result.dagster_run.asset_selection or ())
    partition = result.dagster_run.tags.get("dagster/partition", "")
    what = f"{', '.join(made)} {partition}".rstrip()
    if result.success:
        return f"built   {what}"
    why = why_failed(result) or "it was stopped before its first step"
    return f"FAILED  {what}: {why.splitlines()[0]} (run {result.run_id})"
