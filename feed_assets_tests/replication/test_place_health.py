"""When a place is down: by its probes, with hysteresis, or because a person says so."""

from datetime import UTC, datetime, timedelta
from socket import create_server

from feed_assets.core.place_health import GOOD_LOOKS, Health
from feed_assets.ledger import places_down
from feed_assets.replication import place_looks
from feed_assets.replication.place_looks import look
from feed_assets.runs.services import Services
from feed_assets.settings import settings
from feed_assets_tests.replication.flows import LOCAL, change

T0 = datetime(2026, 2, 1, tzinfo=UTC)
STEP = timedelta(seconds=30)


def after(state, answers, begins=T0, step=STEP):
    """Return the state after probes: `x` fails, `.` is good."""
    for number, answer in enumerate(answers):
        state = state.after("no answer" if answer == "x" else None, begins + number * step)
    return state


def test_a_place_is_down_after_failures_for_two_minutes_and_up_after_as_many_good_probes():
    assert after(Health(), "xxxx").why is None
    down = after(Health(), "xxxxx")
    assert down.why == "it is down since 2026-02-01 00:02 UTC (its blackboard does not answer: no answer)"
    assert after(Health(), "x" * 20, step=timedelta(seconds=6)).why is None  # Not yet for two minutes.
    assert after(Health(), "xxxx.xxxx.xxxx").why is None
    later = T0 + timedelta(hours=1)
    assert after(down, "." * (GOOD_LOOKS - 1), later).why
    assert after(down, "....x....x....", later).why
    assert after(down, "." * GOOD_LOOKS, later).why is None
    assert after(after(down, "." * GOOD_LOOKS, later), "xxxx", later).why is None
    assert after(Health(), "x" * 9, step=-STEP).why is None  # A clock that goes back proves nothing.


def test_what_a_person_says_is_not_changed_by_probes():
    by_hand = Health().marked("flood", "ann", T0)
    assert after(by_hand, "." * 50).why == "it is down since 2026-02-01 00:00 UTC (flood, says ann)"
    assert after(by_hand, "x" * 50).down_by == "ann"
    assert after(Health(), "xxxxx").marked(None, "ann", T0).why is None
    assert after(after(Health(), "xxxxx").marked(None, "ann", T0), "xxxx").why is None


def test_processes_share_the_probes_of_a_place(home, tmp_path, monkeypatch):
    centers = {"b": {"url": (tmp_path / "b").as_uri(), "datasets": ["*"], "targets": ["far"]}}
    centers["c"] = {"url": (tmp_path / "c").as_uri(), "datasets": ["*"]}
    change(monkeypatch, targets={"far": LOCAL}, data_centers=centers)
    services, now = Services.of(settings()), [T0]
    services = Services(services.board, services.ledger, services.maker, now=lambda: now[0])

    def looks(number: int) -> list[bool]:
        down = []
        for _ in range(number):
            now[0] += STEP
            down.append(bool([look(services, settings(), "bc") for _ in range(3)][-1]))  # Three processes, one probe.
        return down

    assert looks(6) == [False] * 4 + [True] * 2
    (tmp_path / "b").mkdir()
    assert looks(6) == [True] * 4 + [False] * 2
    with services.ledger.read() as connection:
        assert places_down.health(connection).keys() == {"b"}, "c has no targets, so nobody needs to know"


def test_silent_places_share_one_limit_and_hold_nobody_up(home, monkeypatch):
    monkeypatch.setattr(place_looks, "SECONDS", 0.2)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with create_server(("127.0.0.1", 0)) as silent:  # The kernel connects, and nobody answers.
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        s3 = {"endpoint": address, "datasets": ["*"]}
        centers = {name: {"url": f"s3://{name * 3}", "targets": [f"far-{name}"], **s3} for name in "cd"}
        change(monkeypatch, targets={"far-c": LOCAL, "far-d": LOCAL}, data_centers=centers)
        services, health = Services.of(settings()), {}
        for minutes in range(5):
            now = T0 + timedelta(minutes=minutes)
            ticking = Services(services.board, services.ledger, services.maker, now=lambda now=now: now)
            health = look(ticking, settings(), "cd")
    why = "it is down since 2026-02-01 00:04 UTC (its blackboard does not answer: no answer in 0.2 s)"
    assert health == dict.fromkeys("cd", why)
