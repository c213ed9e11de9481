"""The judge of histories: records that fit together, and records that do not."""

from feed_assets_tests.faults.histories import History, Published, Read, Removed
from feed_assets_tests.support.each_case import each_case

NAMES = frozenset({"a"})
FIRST, SECOND = Published(1, 2, "20191125.060000", NAMES, "me"), Published(3, 4, "20191125.060001", NAMES, "you")
BOTH = [FIRST, SECOND]


def read(began, ended, update, **more):
    return Read(began, ended, "reader", update and update.id, **{"names": NAMES if update else frozenset(), **more})


@each_case(
    "records",
    [
        [*BOTH, read(0, 0.5, None), read(1.2, 1.7, None), read(1.8, 2.5, FIRST), read(2.6, 3.5, SECOND)],
        [*BOTH, read(3.5, 5, FIRST), read(4.5, 5, SECOND, writer="you")],
        [*BOTH, Removed(5, 6, SECOND.id), read(5.5, 5.7, SECOND), read(5.8, 7, FIRST)],
        [*BOTH, Removed(5, 6, FIRST.id), Removed(5, 6, SECOND.id), read(6.5, 7, None)],
        [*BOTH, read(5, 6, FIRST, as_of=FIRST.id)],
    ],
    ids=["as they appear", "while it is published", "while it is removed", "none is left", "as of"],
)
def test_judge_accepts_every_possible_history(records):
    assert History.of(records).wrongs() == []
    assert History.of(records).steps_back() == []


@each_case(
    ("records", "said"),
    [
        ([FIRST, FIRST], "given to two writers"),
        ([FIRST, read(5, 6, SECOND)], "which nobody published"),
        ([FIRST, read(0, 0.5, FIRST)], "valid at no moment of the call"),
        ([FIRST, Removed(3, 4, FIRST.id), read(5, 6, FIRST)], "valid at no moment of the call"),
        ([*BOTH, read(5, 6, SECOND, as_of=FIRST.id)], "valid at no moment of the call"),
        ([FIRST, read(5, 6, FIRST, names=frozenset())], "expected ['a']"),
        ([FIRST, read(5, 6, FIRST, writer="you")], "you's part"),
        ([*BOTH, read(5, 6, FIRST)], "while 20191125.060001 was valid all the time"),
        ([*BOTH, Removed(5.5, 7, SECOND.id), Removed(8, 9, SECOND.id), read(5, 5.4, None)], "was valid all the time"),
    ],
)
def test_judge_names_what_cannot_have_happened(records, said):
    (wrong,) = History.of(records).wrongs()
    assert said in wrong


def test_judge_allows_a_step_back_only_after_a_removal():
    back = [*BOTH, read(3.2, 3.4, SECOND), read(3.5, 3.6, FIRST)]
    assert len(History.of(back).steps_back()) == 1
    assert History.of([*back, Removed(3.4, 3.5, SECOND.id)]).steps_back() == []
