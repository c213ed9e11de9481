"""Late data is never starved: however it trickles in and is weighed, it is read or knowingly skipped in time."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from feed_assets.core.cadence import tick_after
from feed_assets.core.facts import Built, Facts
from feed_assets.core.feeds import Feed, Partition, parse_update_id, update_id
from feed_assets.core.late_policy import Late, Periods, cut_off_of
from feed_assets.core.pins import Pin
from feed_assets.core.readiness import State, decide
from feed_assets_tests.support.build_needs import need_of
from feed_assets_tests.support.each_case import each_case

DAY, HOUR, INSTANT = timedelta(days=1), timedelta(hours=1), timedelta(microseconds=1)
END = datetime(2024, 2, 28, tzinfo=UTC)
RAW, MADE = (Partition(Feed.parse(f"ias/{name}/v1.0"), "2024-02-27") for name in ("raw", "made"))
PERIODS = Periods(tuple(END + DAY * number for number in range(100)))

arrivals = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=12)
"""Hours since the previous arrival, and bytes that it adds."""

policies = st.builds(
    Late,
    growth=st.sampled_from([None, "5%", "50%"]),
    files=st.sampled_from([None, 3]),
    max_age=st.sampled_from([HOUR, DAY, 3 * DAY]),
    cut_off=st.sampled_from([None, 5 * DAY]),
    check=st.sampled_from([None, "hourly", "daily", "30 5 * * *"]),
    lookback=st.just(99),
    value_per_gb=st.sampled_from([None, 1]),
)


@dataclass
class Day:
    """A simulated day: arrived data, data read with the time, and decisions about the rest."""

    late: Late
    arrived: list[Pin]
    restarts: bool = False
    """Wrong control: each arrival restarts the wait."""
    read_at: dict[str, datetime] = field(default_factory=dict)
    state: State = State.CURRENT

    def live(self) -> None:
        """Decide at each arrival and at each announced time, and read when the decision says so."""
        now, look = END, None
        while now is not None:
            self.state, look = self._decide(now)
            coming = [at for each in self.arrived if (at := came(each)) > now]
            if self.state is State.REBUILD:
                self.read_at |= {each.update_id: now for each in self._unread(now)}
            else:
                coming += [look] if look else []
            now = min(coming, default=None)

    def _unread(self, now: datetime) -> list[Pin]:
        return [each for each in self.arrived if came(each) <= now and each.update_id not in self.read_at]

    def _decide(self, now: datetime) -> tuple[State, datetime | None]:
        there = [each for each in self.arrived if came(each) <= now]
        read = [each for each in there if each.update_id in self.read_at]
        consumed, unread = (read or [FIRST])[-1], self._unread(now)
        need = replace(need_of(MADE, (RAW,), late=self.late), periods=PERIODS)
        upto = need.counts_upto(RAW.feed, now)
        counted = [each for each in [FIRST, *there] if upto and each.update_id <= upto]
        since = {RAW: came(unread[-1 if self.restarts else 0])} if unread else {}
        built = Built(consumed.update_id, (consumed,), since)
        known = {"counted": {(RAW, upto): counted[-1]} if counted else {}, "costs": {MADE.feed: 1.0}}
        (found,) = decide([need], Facts(now, {MADE: built}, {RAW: [FIRST, *there][-1]}, **known))
        assert found.look_again is None or found.look_again > now
        return found.state, found.look_again

    def starved(self) -> list[Pin]:
        """Return data from before the cut-off that the first check after its maximum age did not read."""
        limit = cut_off_of(self.late, PERIODS)
        return [each for each in self.arrived if not (limit and came(each) > limit) and self._is_starved(each)]

    def _is_starved(self, pin: Pin) -> bool:
        old = came(pin) + self.late.max_age
        due = tick_after(self.late.cron, "UTC", old - INSTANT) if self.late.cron else old
        return self.read_at.get(pin.update_id, datetime.max.replace(tzinfo=UTC)) > due


FIRST = Pin(RAW, update_id(END - HOUR), "first", 1000, 10)


def came(pin: Pin) -> datetime:
    return parse_update_id(pin.update_id) or END


def pins(steps: list[tuple[int, int]]) -> list[Pin]:
    found, at, size = list[Pin](), END, FIRST.size
    for number, (hours, more) in enumerate(steps, 1):
        at, size = at + hours * HOUR, size + more
        found.append(Pin(RAW, update_id(at), str(size), size, FIRST.files + number))
    return found


@given(policies, arrivals)
def test_late_data_before_the_cut_off_are_read_by_their_maximum_age(late, steps):
    day = Day(late, pins(steps))
    day.live()
    assert day.starved() == []
    assert day.state in (State.REBUILD, State.CURRENT, State.SKIPS_LATE_DATA), "nothing waits for ever"


@each_case("check", [None, "daily"])
def test_restarting_the_wait_at_each_arrival_would_starve_the_first(check):
    day = Day(Late("50%", max_age=DAY, check=check, lookback=99), pins([(20, 1)] * 12), restarts=True)
    day.live()
    assert day.starved()
