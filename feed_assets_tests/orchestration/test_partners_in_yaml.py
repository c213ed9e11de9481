"""A new partner in one `defs.yaml`: it declares the same as Python, and errors name the file and line."""

import re
from pathlib import Path
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


def test_a_partner_with_pulled_files_in_yaml_equals_python(project):
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


def test_a_partner_who_pushes_in_yaml_equals_python(project):
    found = only(project({"men/defs.yaml": PUSHED}))
    in_python = foreign_feed(
        "partners/men/v1.0", schema=SCHEMA, partitions_def=HOURS, format="json", event_time="at", intake="push"
    )
    assert declaration_of(found) == declaration_of(in_python)


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ('pattern: "%Y-%m-%d/%H/*.csv"', 'pattern: "*/%Y-%m-%d.csv"', "expected %Y, %m and %d before the first"),
        ("lookback: 7", "lookback: -1", r"intake\.lookback at .*defs\.yaml:16.*it is -1 \(int\), expected 0 or more"),
        ("lookback: 7", "lookbak: 7", r"intake\.lookbak at .*defs\.yaml:16.*no such key: is lookback meant\?"),
        ("changed: alert", "changed: ignore", r"it is 'ignore' \(str\), expected 'new_version' or 'alert'"),
        (
            "blackboard: women",
            "board: women",
            r"blackboard at .*:11.*missing.*intake\.board at .*:12.*no such key",
        ),
        ("  feed:", "  fed:", r"attributes\.feed at .*:3.*it is missing.*attributes\.fed at .*:4.*is feed meant"),
        ("intake: push", "intake: pushed", r"it is 'pushed' \(str\), expected 'push' or a dictionary"),
        ("every: hour", "every: week", r"it is 'week' \(str\), expected 'hour' or 'day'"),
        ('pattern: "%Y-%m-%d/%H/*.csv"', 'pattern: "%Y-%m-%d/*.csv"', "hours and %H in the pattern"),
    ],
)
def test_an_error_in_a_partners_yaml_names_its_place_in_plain_words(project, right, wrong, said):
    text = next((each for each in (PULLED, PUSHED) if right in each), f"{PULLED}  {wrong}\n")
    with pytest.raises(Exception, match=r"Error while (building definitions|loading component)") as refused:
        project({"women/defs.yaml": text.replace(right, wrong)})
    told = " ".join(str(refused.value.__cause__).split())
    assert re.search(said, told)
    assert "women/defs.yaml" in told
    assert not re.search("literal|Unexpected keyword|Input should", told)


def test_the_example_of_the_pull_page_loads(project):
    page = (Path(__file__).parents[2] / "docs" / "pull.md").read_text(encoding="utf-8")
    code = {kind: re.findall(rf"^```{kind}\n(.*?)^```", page, re.MULTILINE | re.DOTALL) for kind in ("yaml", "python")}
    (reader,) = [each for each in code["python"] if "def women_clean" in each]
    found = specs_of(project({"women/defs.yaml": code["yaml"][0], "clean.py": reader}))
    assert {each.key.to_user_string() for each in found} == {
        "partners/women",
        "partners/women_clean",
        "partners/women_clean_rejects",
    }


def test_the_partner_component_has_a_schema_of_its_attributes():
    properties = PartnerComponent.get_model_cls().model_json_schema()["properties"]
    assert {"feed", "schema", "intake", "start", "every"} <= properties.keys()
