"""Choice of the updates and slices that a build reads, before anything is claimed."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from feed_assets.core.consistency import mixed, of_one_origin
from feed_assets.core.errors import InvalidDefinition, MixedInputs, NoValidUpdate
from feed_assets.core.facts import Facts
from feed_assets.core.feeds import Partition, Update
from feed_assets.core.inputs import WindowInput
from feed_assets.core.message_words import shortened
from feed_assets.core.needs import Need, Reprocess
from feed_assets.core.pins import Pin
from feed_assets.core.plans import RunSpec
from feed_assets.core.readiness import NAMED
from feed_assets.core.spans import Span
from feed_assets.core.update_choice import Choice
from feed_assets.core.waits import Waits
from feed_assets.core.windows import WindowAddress
from feed_assets.feeds.read import named
from feed_assets.ledger import fact_queries, increment_base, lineage
from feed_assets.runs import slice_inputs
from feed_assets.runs.appending import batch_for
from feed_assets.runs.phases import Pinned
from feed_assets.runs.recipe import Recipe
from feed_assets.runs.services import Services
from feed_assets.runs.sync import pin, pin_batches, sync

Inputs = Mapping[str, Sequence[Partition]]


@dataclass(frozen=True)
class BuildRequest:
    """The request to build a partition from the partitions of each input.

    `named` has updates to read in place of the newest valid ones. `optional` partitions with neither a valid update nor
    an update in `named` are left out.
    """

    recipe: Recipe
    output: Partition
    inputs: Inputs
    named: Mapping[Partition, str]
    run_spec: RunSpec
    optional: Set[Partition]
    windows: Mapping[str, Sequence[WindowInput]]
    """The windows that must be complete, by input."""
    baseline: Sequence[Partition] = ()
    """Partitions whose profiles the new profile is compared with."""
    made_again: Sequence[WindowAddress] = ()
    """For a run by hand, the windows that the partition fills. The bad windows among them are backfilled."""
    waits: Waits = field(default_factory=Waits)
    """Rules that say how many of the needed partitions are enough, and from what time on."""
    absent: Sequence[Partition] = ()
    """Needed partitions that do not exist yet."""
    reprocess: Reprocess = "if_data_changed"
    ignores_quality: bool = False
    """True for a run by hand: bad windows are read if all their data have arrived."""


def pin_inputs(order: BuildRequest, services: Services) -> Pinned:
    """Choose the data to read of each input. Raise NoValidUpdate, MixedInputs or InvalidDefinition if that fails."""
    tables = {source.name for source in order.recipe.sources if source.is_table}
    base, batch, run_spec = _base(order, services)
    lacking = dict.fromkeys(order.absent, f"{order.output} needs a partition that does not exist yet")
    spans, windows = _pinned_windows(order, services, lacking)
    pairs_by_input = {
        name: [pair for partition in partitions for pair in _pinned(order, services, name, partition, lacking)]
        for name, partitions in order.inputs.items()
        if name not in tables | spans.keys()
    }
    _refuse_lacking(order, lacking, services)
    cut = {name: slice_inputs.cut(services.ledger, run_spec, order.output, order.inputs[name]) for name in tables}
    _refuse_several(order, cut)
    read = {pin for pairs in pairs_by_input.values() for _, pin in pairs} | slice_inputs.pins_of(cut)
    pins = tuple(sorted(read | windows | slice_inputs.carried(services.ledger, order.recipe, order.output, read)))
    if not pins:
        raise NoValidUpdate(f"{order.output}: none of its inputs has an event yet: expected one. Wait for it.")
    if order.recipe.is_by_events and not order.run_spec.consumes:
        _refuse_mixed(order, services, pins)
    updates = {name: [update for update, _ in pairs] for name, pairs in pairs_by_input.items()}
    run_spec = replace(run_spec, slices={each.partition: each for some in cut.values() for each in some})
    return Pinned(
        updates,
        cut,
        spans,
        pins=pins,
        run_spec=run_spec,
        without=tuple(map(str, sorted(lacking))),
        base=base,
        batch=batch,
    )


def _base(order: BuildRequest, services: Services) -> tuple[tuple[Update, Pin] | None, Partition | None, RunSpec]:
    """Return the target of an increment, and the run spec for it. If there is no target, the run loads all rows.

    The target is the dataset's own update to which the increment is added, or the batch that the increment becomes.
    """
    run_spec, recipe = order.run_spec, order.recipe
    if recipe.is_appendable:
        batch = batch_for(services, order.output, run_spec.slices, reloads=run_spec.plan.kind == "reload")
        run_spec = (
            replace(run_spec, slices=batch.slices) if batch.slices is not None else _reloading(run_spec, services)
        )
        return None, batch.partition, run_spec
    if not recipe.adds or run_spec.plan.kind == "reload":
        return None, None, run_spec
    sync(services.board_of(order.output.feed), services.ledger, order.output, services.now())
    with services.ledger.read() as connection:
        base = increment_base.base(connection, order.output)
    if base is None:
        return None, None, _reloading(run_spec, services)
    return (named(services.board_of(order.output.feed), order.output, base.update_id), base), None, run_spec


def _reloading(run_spec: RunSpec, services: Services) -> RunSpec:
    if run_spec.plan.kind == "incremental":
        services.on_step("there is no update to which an increment can be added: everything is loaded")
    return replace(run_spec, plan=replace(run_spec.plan, kind="reload"))


def _refuse_several(order: BuildRequest, cut: slice_inputs.Cut) -> None:
    """Raise InvalidDefinition if a function takes one slice of a table but there are several.

    The rows of the other slices would be lost. A function that takes the run spec gets all slices.
    """
    for source in () if "run_spec" in order.recipe.wants else order.recipe.sources:
        if len(pieces := cut.get(source.name, ())) > 1 and source.is_handed and not source.fans_in:
            keys = shortened([each.partition.key for each in pieces], NAMED)
            raise InvalidDefinition(
                f"{order.output}: {source.name} has new rows in {len(pieces)} partitions ({keys}): expected one "
                "partition, because this input is declared without a mapping. "
                f"Declare Input({source.name}, mapping=dg.AllPartitionMapping()), so that the function gets a list of "
                "slices. Or let the function take run_spec, which has all slices. Or give the dataset the same "
                "partitions as its input."
            )


Lacking = dict[Partition, str]
"""Missing input partitions of a run. Each has the error message for a run that cannot proceed without it."""


def _refuse_lacking(order: BuildRequest, lacking: Lacking, services: Services) -> None:
    """Raise NoValidUpdate if too many inputs are missing, or it is too early to proceed without them."""
    windows = [each for some in order.windows.values() for each in some]
    units = {each for at in windows for each in at.needed} | {each for some in order.inputs.values() for each in some}
    if lacking and not order.waits.goes_without(units | lacking.keys(), lacking.keys(), services.now()):
        raise NoValidUpdate(next(iter(lacking.values())))


def _pinned_windows(
    order: BuildRequest, services: Services, lacking: Lacking
) -> tuple[dict[str, Span | None], set[Pin]]:
    """Return the span of windows to read from each `StateTable`, by name, and the pins of all windows to read.

    Raise NoValidUpdate for a window that has become bad since the run was requested. A run by hand ignores quality.
    """
    facts = _known_windows(order, services)
    pins = {each: each.pins(facts, Choice()) for some in order.windows.values() for each in some}
    for each in pins:
        if why := each.behind(facts, Choice()):
            reason = f"{order.output}: {why}. Wait for it, or accept what will never be complete."
            lacking |= dict.fromkeys(each.lacking(facts, Choice()), reason)
    wrong = [why for each in pins if (why := each.problem(facts))]
    if wrong and not order.ignores_quality:
        raise NoValidUpdate(
            f"{order.output}: {'; '.join(wrong)}. Correct the data and report its check as passed, or waive it with "
            "`feed-assets state waive`."
        )
    states = [source.name for source in order.recipe.sources if source.is_state]
    spans = {
        name: next((_read(each, pins[each]) for each in order.windows[name] if pins[each]), None) for name in states
    }
    return spans, {pin for some in pins.values() for pin in some}


def _read(windows: WindowInput, pins: Sequence[Pin]) -> Span:
    """Return the span with only the windows that were pinned."""
    pinned = {pin.partition for pin in pins}
    pairs = zip(windows.span.windows, windows.windows, strict=True)
    return replace(windows.span, windows=tuple(window for window, at in pairs if at in pinned))


def _known_windows(order: BuildRequest, services: Services) -> Facts:
    windows = [each for some in order.windows.values() for each in some]
    with services.ledger.read() as connection:
        return fact_queries.of_windows(connection, windows, services.now())


def backfilled(order: BuildRequest, services: Services, since: int, consumed: Sequence[Pin]) -> bool:
    """Return whether a window was backfilled after it was read. Return False unless `reprocess="always"`.

    A window without a pin counts as read at the log number `since`.
    """
    if order.reprocess != "always":
        return False
    need = Need(order.output, tuple(each for some in order.windows.values() for each in some))
    return bool(need.backfilled(_known_windows(order, services), since, consumed))


def _refuse_mixed(order: BuildRequest, services: Services, pins: Sequence[Pin]) -> None:
    """Raise MixedInputs if the inputs of a manual run were made from different data.

    Then some inputs have newer data that have not gone through the whole pipeline yet. For other runs, the sensor has
    checked this.
    """
    with services.ledger.read() as connection:
        ancestry = lineage.extend(connection, lineage.NOTHING, pins)
    for group in of_one_origin(pins, ancestry.built_from, ancestry.newest):
        is_named = any(pin.partition in order.named or pin.partition.parent in order.named for pin in group)
        why = mixed(group, ancestry.built_from, ancestry.newest)
        if why and not is_named:
            raise MixedInputs(
                f"{order.output}: {why}: expected inputs made from the same data. Wait until the newer data have gone "
                "through the pipeline, or name the updates to read in the run's configuration."
            )


def _pinned(
    order: BuildRequest, services: Services, name: str, partition: Partition, lacking: Lacking
) -> list[tuple[Update, Pin]]:
    try:
        return _required(order, services, name, partition)
    except NoValidUpdate as error:
        is_named = any(partition in (each, each.parent) for each in order.named)
        if partition in order.optional and not is_named:
            return []
        if is_named or order.waits.after is None:
            raise
        lacking[partition] = str(error)
        return []


def _required(order: BuildRequest, services: Services, name: str, partition: Partition) -> list[tuple[Update, Pin]]:
    if any(source.is_appendable for source in order.recipe.sources if source.name == name):
        return pin_batches(services, partition, order.named, only_named=order.run_spec.consumes)
    return [pin(services, partition, order.named.get(partition))]
