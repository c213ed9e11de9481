"""Write events of copies: one for each time that a copy is published or withdrawn, in a table of its own."""

from functools import partial

import pytest

from feed_assets.ledger import event_store, updates
from feed_assets.replication import replica_tasks
from feed_assets.replication.copy_events import CopyEvents
from feed_assets.replication.place_overview import notes
from feed_assets.replication.transitions_read import forget_place
from feed_assets.runs.revalidate import revalidate
from feed_assets.runs.sync import sync
from feed_assets_tests.replication.two_ends import (
    AT_B,
    DAY,
    FILES,
    SALES,
    Killed,
    events_of,
    history,
    overwrite,
    repaired,
    stop,
)
from feed_assets_tests.support.own_updates import publish_own


def test_a_published_copy_has_one_event_that_says_where_it_is(ends):
    first = publish_own(ends.services, DAY, ends.clock())
    of_source = events_of(ends.ledger, SALES)
    assert events_of(ends.ledger) == []
    ends.clock.pass_(seconds=30)
    ends.replicate()
    ends.settle()
    assert events_of(ends.ledger) == [(first.id, "OVERWRITE")]
    assert events_of(ends.ledger, SALES) == of_source == [(first.id, "OVERWRITE")]

    with ends.ledger.read() as connection:
        row = updates.find(connection, DAY, first.id)
        replica = f"the data center b has {first.id}, a replica of {ends.source.url}, 30 s after the source"
        assert notes(connection, row) == [replica]
        (copied,), (source,) = (event_store.newest(connection, 9, each) for each in (AT_B, SALES))
    assert (copied.partition.key, copied.correlation) == (DAY.key, source.correlation)
    assert (copied.event_marker, copied.flag) == ("20260201.030030", None)
    where = {"data_center": "b", "url": ends.place.board.url, "path": first.path, "replica_of": ends.source.url}
    assert copied.context.items() >= where.items()
    assert copied.context["update_id"] == first.id

    publish_own(ends.services, DAY, ends.clock())
    ends.replicate()
    with ends.ledger.read() as connection:
        copied, source = (event_store.newest(connection, 1, each)[0] for each in (AT_B, SALES))
    assert source.context["no_new_data"], "it has the rows of the update before"
    assert "no_new_data" not in copied.context, "the place may have skipped the update before"


def test_a_copy_that_is_withdrawn_valid_again_or_repaired_has_an_event_each_time_and_a_pruned_one_has_none(ends):
    update = publish_own(ends.services, DAY, ends.clock())
    ends.replicate()
    ends.invalidate(update)
    ends.replicate()
    expected = [(update.id, "OVERWRITE"), (update.id, "DELETE")]
    assert events_of(ends.ledger) == expected

    revalidate(ends.services, DAY, update.id)
    ends.replicate()
    expected.append((update.id, "OVERWRITE"))
    assert events_of(ends.ledger) == expected

    name = f"{update.path}/{sorted(each.key for each in update.files)[0].rpartition('/')[2]}"
    overwrite(ends.place.board, name, bytes(len(ends.source.get(name) or b"")))
    assert repaired(ends) == ["different"]
    expected.append((update.id, "OVERWRITE"))
    assert events_of(ends.ledger) == expected
    with ends.ledger.read() as connection:
        assert len({each.correlation for each in event_store.newest(connection, 9, AT_B)}) == len(expected)
        of_lineage = event_store.published_copies(connection, 0, 9)
    assert [(each.marker, each.operation) for each in of_lineage] == [each for each in expected if "DELETE" not in each]

    newer = ends.publish()
    ends.prune()
    ends.replicate()
    assert [*history(ends.place.board)] == [newer.id]
    assert events_of(ends.ledger) == [*expected, (newer.id, "OVERWRITE")]

    ends.source.put(f"{newer.path}/part-0.csv", FILES["part-0.csv"])  # The same bytes, with another etag.
    sync(ends.source, ends.ledger, DAY, ends.clock())
    assert ends.replicate().done == 1
    assert events_of(ends.ledger) == [*expected, (newer.id, "OVERWRITE")], "readers of the place have kept it"
    with ends.ledger.write() as connection:
        forget_place(connection, "b")
    ends.replicate()
    assert events_of(ends.ledger) == [*expected, (newer.id, "OVERWRITE")]


@pytest.mark.parametrize("step", ["files recorded", "before the manifest", "manifest", "event", "task done"])
def test_a_killed_copy_has_its_event_once_and_not_before_its_manifest(ends, step, monkeypatch):
    update = ends.publish(files=FILES)

    def published(*_: object) -> None:
        raise Killed

    ends.on_step = partial(stop, at=step)
    with monkeypatch.context() as patch:
        if step == "event":
            patch.setattr(CopyEvents, "published", published)
        with pytest.raises(Killed):
            ends.replicate()
    assert events_of(ends.ledger) == ([(update.id, "OVERWRITE")] if step == "task done" else [])
    ends.on_step = lambda _: None
    ends.settle()
    assert events_of(ends.ledger) == [(update.id, "OVERWRITE")]


@pytest.mark.parametrize("is_recorded", [False, True])
def test_a_withdrawal_that_is_killed_has_one_event(ends, monkeypatch, is_recorded):
    update = ends.publish()
    ends.replicate()
    ends.invalidate(update)

    def on_step(reached: str) -> None:
        if reached == "withdrawn" and not is_recorded:
            raise Killed

    def remove(*_: object) -> None:
        raise Killed

    ends.on_step = on_step
    with monkeypatch.context() as patch:
        patch.setattr(replica_tasks, "remove", remove)
        with pytest.raises(Killed):
            ends.replicate()
    assert events_of(ends.ledger)[1:] == ([(update.id, "DELETE")] if is_recorded else [])
    ends.on_step = lambda _: None
    ends.settle()
    assert events_of(ends.ledger) == [(update.id, "OVERWRITE"), (update.id, "DELETE")]
