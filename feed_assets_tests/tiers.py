"""Tiers: how much machinery a test needs, and so how often it runs.

A test belongs to the highest of the tiers that its file or folder (`PLACES`), its fixtures (`FIXTURES`) and its
parameters (`PARAMETERS`) name. `make test-fast` runs `FAST`; `make test` adds `PROMISES`; `make test-all` runs every
tier. Tests with the mark `soak` belong to their tier, too, and run in `make soak` alone.
"""

from collections.abc import Iterable, Iterator
from enum import IntEnum
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


class Tier(IntEnum):
    """What a test starts, from little to much."""

    FAST = 0
    """Nothing but this process and small commands: no server, no JVM."""
    SERVERS = 1
    """PostgreSQL, S3, Kafka, a schema registry, a receiver over HTTP, a warehouse, runs in warm processes."""
    SPARK = 2
    """Spark, and the demo."""
    SLOW = 3
    """Kills, faults and histories by chance, Chromium, the tutorial: many seconds or many cases."""

    @property
    def mark(self) -> str:
        """Return the pytest mark of the tier."""
        return self.name.lower()


PLACES = {
    "alerts": Tier.FAST,
    "alerts/test_mail.py": Tier.SERVERS,
    "alerts/test_slow_servers.py": Tier.SERVERS,
    "cli": Tier.FAST,
    "cli/test_ends_of_processes.py": Tier.SLOW,
    "cli/test_doctor.py": Tier.SERVERS,
    "cli/test_live.py": Tier.SERVERS,
    "cli/test_rights.py": Tier.SERVERS,
    "cli/test_stopping.py": Tier.SLOW,
    "core": Tier.FAST,
    "declare": Tier.FAST,
    "defs": Tier.FAST,
    "faults": Tier.SLOW,
    "feeds": Tier.FAST,
    "feeds/test_processes.py": Tier.SLOW,
    "feeds/test_shell_ends.py": Tier.SERVERS,
    "intake": Tier.FAST,
    "intake/test_http.py": Tier.SERVERS,
    "intake/test_killed.py": Tier.SLOW,
    "intake/test_processes.py": Tier.SLOW,
    "intake/test_pull_killed.py": Tier.SLOW,
    "intake/test_waiting.py": Tier.SERVERS,
    "integration": Tier.SLOW,
    "integration/test_demo.py": Tier.SPARK,
    "integration/test_on_s3.py": Tier.SPARK,
    "kafka": Tier.FAST,
    "kafka/test_killed.py": Tier.SLOW,
    "kafka/test_outages.py": Tier.SLOW,
    "launcher": Tier.SERVERS,
    "ledger": Tier.FAST,
    "ledger/test_event_machine.py": Tier.SLOW,
    "ledger/test_quality_machine.py": Tier.SLOW,
    "ledger/test_state_order.py": Tier.SLOW,
    "orchestration": Tier.FAST,
    "orchestration/test_append_machine.py": Tier.SLOW,
    "orchestration/test_attempts.py": Tier.SLOW,
    "orchestration/test_event_ticks.py": Tier.SLOW,
    "orchestration/test_expected_by_chance.py": Tier.SLOW,
    "orchestration/test_increment_machine.py": Tier.SLOW,
    "orchestration/test_never_mixed.py": Tier.SLOW,
    "orchestration/test_pools.py": Tier.SERVERS,
    "orchestration/test_quality_campaign.py": Tier.SLOW,
    "orchestration/test_scale.py": Tier.SLOW,
    "orchestration/test_status_at_scale.py": Tier.SLOW,
    "reading": Tier.FAST,
    "runs": Tier.FAST,
    "runs/test_killed.py": Tier.SLOW,
    "soak": Tier.SLOW,
    "sources": Tier.FAST,
    "spark": Tier.FAST,
    "spark/test_connect.py": Tier.SPARK,
    "spark/test_connect_token.py": Tier.SPARK,
    "testing": Tier.FAST,
    "test_audit.py": Tier.FAST,
    "test_consumers_page.py": Tier.FAST,
    "test_docs.py": Tier.FAST,
    "test_events_page.py": Tier.FAST,
    "test_home.py": Tier.FAST,
    "test_increments_page.py": Tier.FAST,
    "test_reading_page.py": Tier.FAST,
    "test_readme.py": Tier.FAST,
    "test_settings.py": Tier.FAST,
    "test_setup.py": Tier.FAST,
    "test_support.py": Tier.FAST,
    "test_shared.py": Tier.SERVERS,
    "test_states_page.py": Tier.FAST,
    "test_tiers.py": Tier.FAST,
    "test_tutorial.py": Tier.SLOW,
    "warehouse": Tier.SERVERS,
    "warehouse/test_chain.py": Tier.SLOW,
    "warehouse/test_datasets_killed.py": Tier.SLOW,
    "warehouse/test_killed.py": Tier.SLOW,
    "warehouse/test_outages.py": Tier.SLOW,
    "warehouse/test_volume.py": Tier.SLOW,
    "warehouse/test_wire.py": Tier.SLOW,
}
FIXTURES = {
    "broker": Tier.SERVERS,
    "postgresql": Tier.SERVERS,
    "registry": Tier.SERVERS,
    "seaweedfs": Tier.SERVERS,
    "spark": Tier.SPARK,
    "forker": Tier.SLOW,
}
PARAMETERS = {
    "kafka": Tier.SERVERS,
    "postgresql": Tier.SERVERS,
    "s3": Tier.SERVERS,
    "memory": Tier.SLOW,
    "marker": Tier.SLOW,
    "jsonl": Tier.SLOW,
}
"""Words of a parameter that choose an implementation, such as `s3` of the fixture `board`.

A behaviour suite runs over every implementation. `FAST` has it whole for one without a server (a folder, SQLite, CSV
files); what repeats it for another one without a server is `SLOW`.
"""

PROMISES: dict[str, tuple[str, ...]] = {}
PROMISED = frozenset(name for names in PROMISES.values() for name in names)


def place_of(path: Path) -> str | None:
    """Return the entry of `PLACES` for a test file: its own, or else that of its folder. None if it has none."""
    name = path.relative_to(TESTS).as_posix()
    return next((place for place in (name, name.partition("/")[0]) if place in PLACES), None)


def tier_of(item: pytest.Item) -> Tier:
    """Return the tier of a test. Raise UsageError if neither its file nor its folder is in `PLACES`."""
    place = place_of(item.path)
    if place is None:
        raise pytest.UsageError(f"{item.path}: no tier; add the file or its folder to PLACES in {__file__}")
    fixtures = (FIXTURES[name] for name in getattr(item, "fixturenames", ()) if name in FIXTURES)
    return max([PLACES[place], *fixtures, *_tiers_of_parameters(item)])


def _tiers_of_parameters(item: pytest.Item) -> Iterator[Tier]:
    callspec = getattr(item, "callspec", None)
    for value in callspec.params.values() if callspec else ():
        if isinstance(value, str):
            yield from (PARAMETERS[word] for word in value.split() if word in PARAMETERS)


def mark(items: Iterable[pytest.Item]) -> None:
    """Mark each test with its tier, and those that `PROMISES` names with `promise`."""
    for item in items:
        item.add_marker(tier_of(item).mark)
        if not PROMISED.isdisjoint(_names_of(item)):
            item.add_marker("promise")


def _names_of(item: pytest.Item) -> set[str]:
    """Return the names by which `PROMISES` may mean a test: its file, its function, this one case."""
    file = item.path.relative_to(TESTS).as_posix()
    function = f"{file}::{getattr(item, 'originalname', item.name)}"
    return {file, function, f"{file}::{item.name}"}
