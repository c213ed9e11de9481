"""A new partner is a `defs.yaml`: what it declares is what Python declares, and what is wrong in it is said."""

from textwrap import dedent

import dagster as dg
import pytest

from feed_assets import Completeness, PartnerComponent, Pull, foreign_feed
from feed_assets.orchestration.declare.declarations import declaration_of, specs_of
from feed_assets.orchestration.declare.partitions import windows_from

PULLED = dedent(
    """
    type: feed_assets.PartnerComponent
    attributes:
      feed: partners/women/v1.0
      schema: "id string, at timestamp"
      start: "2026-01-01"
      format: csv
      event_time: at
      completeness: {grains: [hour]}
      owners: ["team:ads"]
      intake:
        blackboard: women
        pattern: "%Y-%m-%d/%H/*.csv"
        prefix: out
        cron: "0 */2 * * *"
        lookback: 7
        changed: alert
    """
)
PUSHED = dedent(
    """
    type: feed_assets.PartnerComponent
    attributes:
      feed: partners/men/v1.0
      schema: "id string, at timestamp"
      start: "2026-01-01"
      event_time: at
      intake: push
    """
)
HOURS = windows_from("2026-01-01", "hour")
SCHEMA = "id string, at timestamp"


def only(definitions: dg.Definitions) -> dg.AssetSpec:
    (spec,) = specs_of(definitions)
    return spec


def test_a_partner_whose_files_are_pulled(project):
    found = only(project({"women/defs.yaml": PULLED}))
    intake = Pull("women", "%Y-%m-%d/%H/*.csv", prefix="out", cron="0 */2 * * *", lookback=7, changed="alert")
    in_python = foreign_feed(
        "partners/women/v1.0",
        schema=SCHEMA,
        partitions_def=HOURS,
        format="csv",
        event_time="at",
        completeness=Completeness(("hour",)),
        owners=["team:ads"],
        intake=intake,
    )
    assert declaration_of(found) == declaration_of(in_python)
    assert (found.partitions_def, found.owners) == (in_python.partitions_def, ["team:ads"])


def test_a_partner_who_pushes(project):
    found = only(project({"men/defs.yaml": PUSHED}))
    in_python = foreign_feed(
        "partners/men/v1.0", schema=SCHEMA, partitions_def=HOURS, format="json", event_time="at", intake="push"
    )
    assert declaration_of(found) == declaration_of(in_python)


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ('pattern: "%Y-%m-%d/%H/*.csv"', 'pattern: "*/%Y-%m-%d.csv"', "expected %Y, %m and %d before the first"),
        ("lookback: 7", "lookback: -1", "0 or more"),
        ("changed: alert", "changed: ignore", "new_version"),
        ("blackboard: women", "board: women", "blackboard"),
        ("every: hour", "every: week", "week"),
        ('pattern: "%Y-%m-%d/%H/*.csv"', 'pattern: "%Y-%m-%d/*.csv"', "hours and %H in the pattern"),
    ],
)
def test_what_is_wrong_is_said(project, right, wrong, said):
    text = PULLED if right in PULLED else f"{PULLED}  {wrong}\n"
    with pytest.raises(Exception, match=r"Error while (building definitions|loading component)") as refused:
        project({"women/defs.yaml": text.replace(right, wrong)})
    assert said in str(refused.value.__cause__)
    assert "women/defs.yaml" in str(refused.value.__cause__)


def test_dg_shows_its_attributes():
    properties = PartnerComponent.get_model_cls().model_json_schema()["properties"]
    assert {"feed", "schema", "intake", "start", "every"} <= properties.keys()
