"""Every order of the events of small pipelines, against a judgement simple enough to be trusted."""

from itertools import permutations, product

from feed_assets_tests.core.arrivals import arrived, consumer, due_of, feed

PIPELINES = {"p": ["a", "b", "c"], "q": ["d"]}


def oracle(needs, events):
    """Return the complete (pipeline, correlation) pairs: each needed table has an event."""
    pairs = {(str(event.partition.feed), event.correlation) for event in events}
    return {
        (name, correlation)
        for name, tables in needs.items()
        for correlation in {event.correlation for event in events}
        if tables and all((table, correlation) in pairs for table in tables)
    }


def histories():
    """Return subsets and orders of events of two pipelines and three correlation ids, with one repeated event."""
    every = [(table, correlation) for correlation in "XYZ" for table in "abcd"]
    for size in range(1, 5):
        yield from permutations(every[:8], size)
    for kept in product([False, True], repeat=len(every)):
        chosen = [event for event, keep in zip(every, kept, strict=True) if keep]
        if chosen:
            yield [*chosen, chosen[0]]
            yield chosen[::-1]


def test_complete_propagations_are_those_of_the_oracle():
    who = consumer("a", "b", "d", pipelines=PIPELINES)
    needs = {"p": ["a", "b"], "q": ["d"]}
    count = 0
    for reported in histories():
        events = [event for event in arrived(*reported) if event.partition.feed != feed("c")]
        found = due_of(who, events)
        complete = {(each.pipeline, each.correlation) for each in (*found.selected, *found.later)}
        assert complete == oracle(needs, events), reported
        assert {event for each in (*found.selected, *found.later, *found.incomplete) for event in each.events} == {
            *events
        }
        count += 1
    assert count > 10_000


def test_the_slices_of_one_run_after_another_are_every_event_once():
    """Consume due slices run by run, in any order: they cover each event's interval once, without gaps."""
    who = consumer("a", "b", pipelines={"p": ["a", "b"]})
    for reported in permutations([("a", "X"), ("b", "X"), ("a", "Y"), ("b", "Y"), ("a", "Z"), ("b", "Z")]):
        every = arrived(*reported)
        left, covered = list(every), []
        while left:
            found = due_of(who, left, every)
            assert found.slices
            within = [event for event in left if any(_holds(piece, event) for piece in found.slices)]
            assert {event.correlation for event in within} == {each.correlation for each in found.selected}
            covered += within
            left = [event for event in left if event not in within]
        assert sorted(event.sequence for event in covered) == [1, 2, 3, 4, 5, 6]


def _holds(piece, event):
    after = piece.start is None or (event.previous is not None and event.previous >= piece.start)
    return event.partition == piece.partition and after and event.marker <= piece.end
