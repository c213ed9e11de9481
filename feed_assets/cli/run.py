"""`feed-assets run`: evaluate sensors and conditions, and execute the runs that they request, in this process."""

from typing import TYPE_CHECKING, Annotated

import typer

from feed_assets.cli.feed import AsJson
from feed_assets.cli.loaded_location import Module, load, open_instance
from feed_assets.cli.progress import LOADING, progress
from feed_assets.cli.run_output import RanView, Teller, UnfinishedView, alerts_once
from feed_assets.cli.show import show
from feed_assets.cli.stopping import stopping
from feed_assets.cli.traces import Verbose, are_wanted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from feed_assets.cli.progress import Progress
    from feed_assets.core.feeds import Partition
    from feed_assets.orchestration.runner import Runner

NOT_BUILT, FOR_A_PERSON = 1, 3
"""Exit codes of `run`. docs/reference/exit-codes.md lists all exit codes."""

STARTING_SPARK = "starting Spark"
"""The name of the step in `orchestration.runner`. It is repeated here, because importing that module takes long."""


def run(
    module: Module = None,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="Continue until no run is requested any more.")
    ] = False,
    verbose: Verbose = False,  # noqa: ARG001 (only the option's callback uses it)
    as_json: AsJson = False,
) -> None:
    """Evaluate all sensors and conditions and run what they request: once, or until nothing is left to do.

    The steps are printed on stderr, and the end of each run on stdout. The exit code is 3 if partitions, or changes for
    a subscription or a sink, wait for a person, and 4 if a service is not available. It is 1 if a run failed and is
    retried later, if a ready partition could not be built, or if a subscription is behind. It is also 1 if a dataset
    could not be decided, or a feed or event source could not be read.
    Partitions that wait for compute resources (BUSY) do not change it.
    """
    with progress(STARTING_SPARK) as doing:
        doing.say(LOADING)
        definitions = load(module)
        from feed_assets.orchestration.runner import Runner

        with stopping() as check, doing.cleared(), alerts_once(), open_instance() as instance:
            teller = Teller(doing, check, as_json)
            runner = Runner(definitions, instance, teller.hear, on_step=quietly(doing), on_problems=teller.say_problems)
            view = _tick(runner, teller, until_idle=until_idle)
    if as_json:
        show(view, as_json)
    has_failed = any(not each.succeeded for each in view.runs)
    is_left = has_failed or view.left or view.failing or view.undecided or view.again
    raise typer.Exit(FOR_A_PERSON if view.waits else NOT_BUILT if is_left else 0)


def quietly(doing: "Progress") -> "Callable[[str], None]":
    """Return a function that prints a runner's steps. Before the step that starts Spark, it hides Spark's banner."""

    def hear(step: str) -> None:
        if step == STARTING_SPARK:
            from feed_assets.settings import settings
            from feed_assets.spark.jvm import hide_banner
            from feed_assets.spark.session import heap_in_words

            hide_banner(keeps_traces=are_wanted())
            has_targets = bool(settings().targets.get_secret_value())  # Targets define the heap of each run.
            step += "" if has_targets else heap_in_words(settings())
        doing.say(step)

    return hear


def _tick(runner: "Runner", teller: Teller, *, until_idle: bool) -> RanView:
    from feed_assets.core.readiness import State
    from feed_assets.orchestration.ticks.sink_failures import NEEDS_PERSON

    unbuilt, ticks = dict["Partition", str](), 1
    if until_idle:
        ticks = runner.run_until_idle()
        unbuilt = runner.in_vain()
        teller.list("LEFT", unbuilt, "it is ready, but its runs did not build it")
        teller.say(
            f"stopped after {ticks} ticks: {_not_built(len(unbuilt))}" if unbuilt else f"idle after {ticks} ticks"
        )
    else:
        teller.say(f"one tick: {'more may be ready now' if runner.run_once() else 'nothing was due'}")
    failing, undecided = runner.failing(), runner.undecided()
    busy = runner.waiting(State.WAITS_FOR_RESOURCES)
    again = runner.waiting(State.WAITS_FOR_ANOTHER_ATTEMPT)
    waiting = runner.waiting(State.WAITS_FOR_A_PERSON) | runner.refused()
    undelivered, behind = _undelivered(runner)
    for_person = {sink: failing.pop(sink) for sink in [*failing] if sink.endswith(NEEDS_PERSON)}
    teller.list("FAILING", failing)
    teller.list("UNDECIDED", undecided)
    teller.list("AGAIN", again)
    teller.list("AGAIN", behind)
    teller.list("BUSY", busy, "it waits for resources")
    _say_who_waits(teller, waiting)
    teller.list("WAITS", {**undelivered, **for_person})
    views = {"left": unbuilt, "failing": failing, "undecided": undecided, "again": {**again, **behind}}
    views |= {"busy": busy, "waits": {**waiting, **undelivered, **for_person}}
    return RanView(
        runs=tuple(teller.runs), ticks=ticks, **{name: UnfinishedView.of(each) for name, each in views.items()}
    )


def _undelivered(runner: "Runner") -> "tuple[Mapping[str, str], Mapping[str, str]]":
    """Return the subscriptions whose changes wait for a person, and those that wait for another try, with reasons."""
    from feed_assets.orchestration.declare.on_change import subscriptions_of

    declared = subscriptions_of(runner.definitions)
    if not declared:
        return {}, {}
    from feed_assets.deliveries import delivery_alerts
    from feed_assets.ledger.database import open_ledger
    from feed_assets.settings import settings

    for_person, again = delivery_alerts.unsolved(open_ledger(settings().ledger), declared)
    return _named(for_person), _named(again)


def _named(reasons: "Mapping[str, str]") -> "dict[str, str]":
    return {f"subscription {name}": why for name, why in reasons.items()}


def _say_who_waits(teller: Teller, waiting: "Mapping[Partition, str]") -> None:
    if waiting:
        teller.say(f"{len(waiting)} wait{'s' * (len(waiting) == 1)} for a person:")
        teller.list("WAITS", waiting)
        teller.say(
            "See `feed-assets explain`. After failed runs, mend the cause, then `feed-assets build --failed --refused`."
        )


def _not_built(count: int) -> str:
    return f"{count} partition{'s' * (count > 1)} ready and not built; mend the cause, then repeat the command"
