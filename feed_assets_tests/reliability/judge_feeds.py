"""Invariants of datasets: what their updates are made of."""

from collections import defaultdict
from collections.abc import Iterator

from feed_assets_tests.reliability.evidence import READS, Evidence, invariant, is_good
from feed_assets_tests.reliability.published import CLEAN, JOINED, ORDERS, STOCK, Update


@invariant
def every_input_is_in_one_current_version(evidence: Evidence) -> Iterator[str]:
    """Object unless each output was built from the newest inputs.

    While the newest orders fail the check, `clean` stays as it is, and its consumers wait.
    """
    held = {key for key, found in evidence.updates[ORDERS].items() if not is_good(evidence.rows(found[-1]))}
    for key, orders in evidence.updates[ORDERS].items():
        output = evidence.current(CLEAN, key)
        if key not in held and (not output or evidence.made_of(output) != [orders[-1].path]):
            yield f"{CLEAN}/{key} is {output and evidence.made_of(output)}, not made of {orders[-1].path}"
    for key in (evidence.updates[CLEAN].keys() & evidence.updates[STOCK].keys()) - held:
        inputs = sorted(evidence.updates[feed][key][-1].path for feed in READS[JOINED])
        output = evidence.current(JOINED, key)
        if not output or evidence.made_of(output) != inputs:
            yield f"{JOINED}/{key} is {output and evidence.made_of(output)}, not made of {inputs}"


@invariant
def nothing_that_failed_its_check_is_readable(evidence: Evidence) -> Iterator[str]:
    """Object to each valid update with an amount that the check refuses."""
    for feed, _, found in evidence.outputs():
        yield from (update.path for update in found if feed in READS and not is_good(evidence.rows(update)))


@invariant
def rows_are_those_of_the_named_inputs(evidence: Evidence) -> Iterator[str]:
    """Object to each valid update whose rows differ from what its inputs give."""
    for feed, _, found in evidence.outputs():
        for update in found:
            inputs = [evidence.at(path) for path in evidence.made_of(update)]
            if not all(inputs):
                yield f"{update.path} is made of {evidence.made_of(update)}, of which one is not valid"
            elif said := _differs(evidence, feed, update, [each for each in inputs if each]):
                yield f"{update.path} {said}"


def _differs(evidence: Evidence, feed: str, update: Update, inputs: list[Update]) -> str:
    by_feed = {each.path.rsplit("/", 2)[0]: evidence.rows(each) for each in inputs}
    if sorted(by_feed) != sorted(READS[feed]):
        return f"names {sorted(by_feed)} as its inputs"
    if feed == CLEAN:
        expected = [(row["id"], int(row["amount"])) for row in by_feed[ORDERS]]
    else:
        pieces = sum(int(row["pieces"]) for row in by_feed[STOCK])
        expected = [(row["id"], row["amount"], pieces) for row in by_feed[CLEAN]]
    columns = ("id", "amount", "pieces")[: 2 if feed == CLEAN else 3]
    got = [tuple(row[name] for name in columns) for row in evidence.rows(update)]
    return "" if sorted(got) == sorted(expected) else f"has {sorted(got)}, not {sorted(expected)}"


@invariant
def nothing_is_built_twice_of_one_snapshot(evidence: Evidence) -> Iterator[str]:
    """Object to two valid updates of one output that the same code made of the same inputs."""
    for _, _, found in evidence.outputs():
        made = defaultdict[tuple[str, str], list[str]](list)
        for update in found:
            made[str(evidence.made_of(update)), evidence.rows(update)[0]["code"]].append(update.path)
        yield from (f"{paths} are made of {of}" for (of, _), paths in made.items() if len(paths) > 1)
