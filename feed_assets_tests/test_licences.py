"""Licences of all packages in uv.lock: the page is complete, and nothing for users is under the GPL."""

import runpy

import pytest

from feed_assets_tests.support.servers import ROOT

SCRIPT = runpy.run_path(str(ROOT / "scripts" / "licences.py"))
LOCK = {
    "package": [
        {"name": "feed-assets", "dependencies": [{"name": "a"}], "optional-dependencies": {"x": [{"name": "b"}]}},
        {"name": "a", "dependencies": [{"name": "c", "extra": ["y"]}]},
        {"name": "b"},
        {"name": "c", "optional-dependencies": {"y": [{"name": "d"}]}},
        {"name": "d"},
        {"name": "e"},
    ]
}


def test_the_page_has_each_package_of_the_lock_file(capsys):
    assert SCRIPT["main"]("--check") == 0, capsys.readouterr().err


def test_a_package_comes_with_feed_assets_an_extra_or_for_development():
    found = SCRIPT["rows"](LOCK, dict.fromkeys("abcd", "MIT"), {"e": "GPL-3.0"})
    uses = {"a": "feed_assets", "b": "extra `x`", "c": "feed_assets", "d": "feed_assets", "e": "development"}
    assert {name: use for name, (_, use) in found.items()} == uses
    assert found["e"][0] == "GPL-3.0"
    with pytest.raises(SystemExit, match=r"licence is not known here: e\."):
        SCRIPT["rows"](LOCK, dict.fromkeys("abcd", "MIT"), {})


def test_the_gpl_is_known_by_each_of_its_names_and_the_lgpl_is_another():
    names = ["GPL-3.0-only", "AGPL-3.0", "GNU General Public License v3 (GPLv3)", "GNU Affero General Public License"]
    assert [name for name in names if not SCRIPT["COPYLEFT"].search(name)] == []
    weak = ["LGPL-3.0-only", "GNU Library or Lesser General Public License (LGPL)", "MIT"]
    assert [name for name in weak if SCRIPT["COPYLEFT"].search(name)] == []
