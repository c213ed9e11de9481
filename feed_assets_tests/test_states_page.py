"""Pages of the reference list states, alerts and metadata like the code."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path

from jsonschema import Draft202012Validator

from feed_assets.core.events import WriteEvent
from feed_assets.core.grid import LEGEND
from feed_assets.deliveries.delivery_alerts import UNDELIVERED
from feed_assets.orchestration.ticks import watch
from feed_assets.orchestration.ticks.deadlines import DEADLINE
from feed_assets.orchestration.ticks.orphan_sensor import DAMAGED, UNKNOWN
from feed_assets.orchestration.ticks.slow_code_alerts import SLOWER
from feed_assets.orchestration.ticks.tick import FAILING
from feed_assets.orchestration.ticks.topic_checks import KINDS
from feed_assets.replication import place_overview
from feed_assets.sources.sinks import line_of

ROOT = Path(__file__).parents[1]
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "reference").glob("*.md")}
OF_WATCH = {watch.LATE, watch.STUCK, watch.UNREACHABLE, watch.UNDECIDED, watch.AUDIT, watch.PERSON}
ELSEWHERE = {place_overview.LATE, UNDELIVERED, DEADLINE, DAMAGED, UNKNOWN, SLOWER, FAILING, *KINDS}


def test_alerts_and_keys_of_metadata_are_those_of_the_code():
    kinds = set(re.findall(r"^\| `(\w+):", PAGES["alerts"], re.MULTILINE))
    assert kinds == OF_WATCH | ELSEWHERE
    code = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "feed_assets/orchestration").rglob("*.py"))
    rows = PAGES["tags"].partition("## Metadata of a materialization")[2].splitlines()
    keys = [key for row in rows if row.startswith("| `") for key in re.findall(r"`([^`]+)`", row.split(" | ")[0])]
    assert len(keys) > 15
    assert [key for key in keys if f'"{key}"' not in code and f"'{key}'" not in code] == []


def test_the_signs_and_the_schema_of_events_are_those_of_the_code():
    rows = [line.split(" | ") for line in PAGES["states"].splitlines() if line.startswith("| `")]
    signs = {sign.strip("| `"): state for sign, state, *_ in rows if len(sign) == len("| `=`")}
    assert signs == {sign: words.partition(":")[0] for sign, words in LEGEND.values()}
    schema = json.loads(PAGES["schemas"].partition("```json\n")[2].partition("```")[0])
    event = WriteEvent("shop/orders", 7, datetime(2026, 1, 1, tzinfo=UTC), "id", context={"records": 3})
    published = json.loads(line_of(12, event))
    strict = Draft202012Validator({**schema, "additionalProperties": False})
    assert [error.message for error in strict.iter_errors(published)] == []
    assert not strict.is_valid({**published, "marker": 7})
